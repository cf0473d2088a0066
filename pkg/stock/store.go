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
	eras  sync.Map // sale id -> lua.Era last seen in its meta
}

// New returns a store over a client. The client must not retry by itself
// (MaxRetries -1): a script whose answer was lost may have run.
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
)

// NotLoaded says that Redis has no trusted state for a sale: nothing may be
// sold until a reconciler has restored it.
type NotLoaded struct {
	SaleID string
	Reason string
}

func (e *NotLoaded) Error() string {
	return fmt.Sprintf("sale %s is not loaded: %s", e.SaleID, e.Reason)
}

// call runs one script of the sale's era. The era is taken from memory and, when
// the server refuses it, once more from meta. Neither refusal has run
// anything, so that the second try is no repetition.
func (s *Store) call(ctx context.Context, saleID string, pick func(lua.Scripts) lua.Script, keys []string, args []any) ([]any, error) {
	era, fresh, err := s.era(ctx, saleID)
	if err != nil {
		return nil, err
	}
	reply, err := s.run(ctx, saleID, pick(lua.In(era)), keys, args)
	var refused *NotLoaded
	if fresh || !errors.As(err, &refused) {
		return reply, err
	}
	s.eras.Delete(saleID)
	again, _, err := s.era(ctx, saleID)
	if err != nil {
		return nil, err
	}
	if again == era {
		return nil, refused
	}
	return s.run(ctx, saleID, pick(lua.In(again)), keys, args)
}

// era returns the sale's era; fresh is true when it was read just now.
func (s *Store) era(ctx context.Context, saleID string) (era lua.Era, fresh bool, err error) {
	if known, ok := s.eras.Load(saleID); ok {
		return known.(lua.Era), false, nil
	}
	text, err := s.redis.HGet(ctx, KeysOf(saleID).Meta(), "era").Result()
	if errors.Is(err, redis.Nil) || (err == nil && !lua.Era(text).Valid()) {
		return "", true, &NotLoaded{SaleID: saleID, Reason: ReasonNoState}
	}
	if err != nil {
		return "", true, fmt.Errorf("read era of sale %s: %w", saleID, err)
	}
	s.eras.Store(saleID, lua.Era(text))
	return lua.Era(text), true, nil
}

// run calls a script by its SHA-1, never by its text: only a reconciler loads.
func (s *Store) run(ctx context.Context, saleID string, script lua.Script, keys []string, args []any) ([]any, error) {
	reply, err := s.redis.EvalSha(ctx, script.SHA, keys, args...).Slice()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return nil, &NotLoaded{SaleID: saleID, Reason: ReasonNewServer}
	}
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
