// Package stock is the state of sales in Redis: what is left, who bought, and
// which grants were made. The decisions are taken by the scripts in lua/;
// this package builds their keys and arguments and reads their answers.
//
// A sale is trusted only in the era it was restored in (see lua/fence.lua).
// Every operation on a sale that is not trusted answers with a *NotLoaded
// error and changes nothing.
package stock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/redis/go-redis/v9"
)

// Store reads and changes the state of sales. It is safe for concurrent use.
type Store struct {
	redis redis.UniversalClient
	trim  *redis.Script
	eras  sync.Map // sale id -> *names of the era last seen in its meta
	named sync.Map // lua.Era -> *names: sales of one server share them
}

// New returns a store over a client. The scripts are sent at most once per call,
// whatever the client's MaxRetries: one whose answer was lost may have run.
func New(client redis.UniversalClient) *Store {
	return &Store{redis: client, trim: redis.NewScript(lua.Trim)}
}

// Ping reports whether Redis answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping redis: %w", err)
	}
	return nil
}

// Reasons of a NotLoaded, besides those that fence.lua gives.
const (
	ReasonNoState   = "no_state"   // meta has no era
	ReasonOtherEra  = "other_era"  // restored in another era
	ReasonMoved     = "moved"      // the server changed its role
	ReasonDamaged   = "damaged"    // a key is missing or has a wrong size
	ReasonNewServer = "new_server" // the server does not know the era's scripts
	ReasonFenced    = "fenced"     // a later generation began than the one in Redis
)

// Reasons lists every reason, for metrics.
var Reasons = []string{ReasonNoState, ReasonOtherEra, ReasonMoved, ReasonDamaged, ReasonNewServer, ReasonFenced}

// NotLoaded says that Redis has no trusted state for a sale: nothing may be
// sold until a reconciler has restored it.
type NotLoaded struct {
	SaleID string
	Reason string
}

func (e *NotLoaded) Error() string {
	return fmt.Sprintf("sale %s is not loaded: %s", e.SaleID, e.Reason)
}

// names are the SHA-1 names of an era's scripts. They are computed once per era: that
// takes longer than a batch does.
type names struct {
	era                    lua.Era
	grab, release, inspect string
	find                   string
}

// namesOf names the scripts of an era. A server begins a new era when it restarts or
// changes its role, so there are few.
func (s *Store) namesOf(era lua.Era) *names {
	if n, ok := s.named.Load(era); ok {
		return n.(*names)
	}
	in := lua.In(era)
	n, _ := s.named.LoadOrStore(era, &names{
		era: era, grab: in.Grab.SHA, release: in.Release.SHA, inspect: in.Inspect.SHA, find: in.Find.SHA,
	})
	return n.(*names)
}

// call runs one script of the sale's era. The era is taken from memory and, when
// the server refuses it, once more from meta. Neither refusal has run
// anything, so that the second try is no repetition. It returns the era whose
// script answered.
func (s *Store) call(ctx context.Context, saleID string, pick func(*names) string, keys []string, args []any) (lua.Era, []any, error) {
	known, fresh, err := s.known(ctx, saleID)
	if err != nil {
		return "", nil, err
	}
	reply, err := s.run(ctx, saleID, pick(known), keys, args)
	var refused *NotLoaded
	if fresh || !errors.As(err, &refused) {
		return known.era, reply, err
	}
	s.eras.Delete(saleID)
	again, _, err := s.known(ctx, saleID)
	if err != nil {
		return "", nil, err
	}
	if again.era == known.era {
		return "", nil, refused
	}
	reply, err = s.run(ctx, saleID, pick(again), keys, args)
	return again.era, reply, err
}

// known returns the names of the sale's era; fresh is true when the era was read
// just now.
func (s *Store) known(ctx context.Context, saleID string) (n *names, fresh bool, err error) {
	if n, ok := s.eras.Load(saleID); ok {
		return n.(*names), false, nil
	}
	text, err := s.redis.HGet(ctx, KeysOf(saleID).Meta(), "era").Result()
	if errors.Is(err, redis.Nil) || (err == nil && !lua.Era(text).Valid()) {
		return nil, true, &NotLoaded{SaleID: saleID, Reason: ReasonNoState}
	}
	if err != nil {
		return nil, true, fmt.Errorf("read era of sale %s: %w", saleID, err)
	}
	n = s.namesOf(lua.Era(text))
	s.eras.Store(saleID, n)
	return n, true, nil
}

// once is a command that the client sends at most once. A Cluster client would
// send it again after a timeout, whatever MaxRetries says.
type once struct{ *redis.Cmd }

// NoRetry forbids the client to send the command again.
func (once) NoRetry() bool { return true }

// run calls a script by its SHA-1, never by its text: only a reconciler loads.
func (s *Store) run(ctx context.Context, saleID, sha string, keys []string, args []any) ([]any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", sha, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := once{redis.NewCmd(ctx, append(all, args...)...)}
	cmd.SetFirstKeyPos(3)
	err := s.redis.Process(ctx, cmd)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return nil, &NotLoaded{SaleID: saleID, Reason: ReasonNewServer}
	}
	if err != nil {
		return nil, fmt.Errorf("run script on sale %s: %w", saleID, err)
	}
	reply, err := cmd.Slice()
	if err != nil {
		return nil, fmt.Errorf("run script on sale %s: %w", saleID, err)
	}
	status, err := textAt(reply, 0)
	if err != nil {
		return nil, err
	}
	if status == "distrusted" {
		reason, err := textAt(reply, 1)
		if err != nil {
			return nil, err
		}
		return nil, &NotLoaded{SaleID: saleID, Reason: reason}
	}
	return reply, nil
}

func textAt(reply []any, i int) (string, error) {
	if i < len(reply) {
		if v, ok := reply[i].(string); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("script answer %v: no text at %d", reply, i)
}

func intAt(reply []any, i int) (int64, error) {
	if i < len(reply) {
		if v, ok := reply[i].(int64); ok {
			return v, nil
		}
	}
	return 0, fmt.Errorf("script answer %v: no number at %d", reply, i)
}

func listAt(reply []any, i int) ([]any, error) {
	if i < len(reply) {
		if v, ok := reply[i].([]any); ok {
			return v, nil
		}
	}
	return nil, fmt.Errorf("script answer %v: no list at %d", reply, i)
}
