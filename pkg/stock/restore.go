package stock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/redis/go-redis/v9"
)

// temporaryTTL is how long an abandoned restore keeps its memory.
const temporaryTTL = time.Hour

// Restore prepares the rebuilt state of one sale in temporary keys and makes
// it the sale's state in one step. It is not safe for concurrent use.
type Restore struct {
	store   *Store
	saleID  string
	live    Keys
	tmp     Keys
	chunk   int
	pending map[string][]any // key -> values not yet sent
	count   struct{ buyers, grants, applied int64 }
	used    []usedKey
	usedBy  map[string]int64 // temporary key -> subjects
}

// BeginRestore starts a restore that sends chunk entries at a time.
func (s *Store) BeginRestore(saleID string, chunk int) *Restore {
	live := KeysOf(saleID)
	return &Restore{
		store: s, saleID: saleID, live: live, tmp: live.temporary(rand.Text()), chunk: chunk,
		pending: make(map[string][]any), usedBy: make(map[string]int64),
	}
}

// Grant adds a grant; record is as sale.AppendGrant writes it. Each order id
// may be added once.
func (r *Restore) Grant(ctx context.Context, orderID string, record []byte) error {
	r.count.grants++
	return r.add(ctx, r.tmp.Grants(), orderID, restoredBy+" 0\n"+string(record))
}

// Buyer adds a user who was granted something, with the units they hold and their
// last order. Each user may be added once.
func (r *Restore) Buyer(ctx context.Context, user string, units int64, orderID string) error {
	r.count.buyers++
	return r.add(ctx, r.tmp.Buyers(), user, strconv.FormatInt(units, 10)+" "+orderID)
}

// Window opens a limit's window that holds at, in the sale's zone: what it counted
// until now is forgotten. Each window may be opened once, before anything is counted in it.
func (r *Restore) Window(l sale.Limit, at time.Time, zone *time.Location) {
	u := usedKey{l, l.Window.Period(at, zone), usedUntil(l.Window, at, zone)}
	r.used = append(r.used, u)
}

// Used adds the units a subject has used in a window that was opened. Each
// subject may be added once per window.
func (r *Restore) Used(ctx context.Context, limit, period, subject string, units int64) error {
	key := r.tmp.Used(limit, period)
	r.usedBy[key]++
	return r.add(ctx, key, storedSubject(limit, subject), units)
}

// Giveback adds a giveback that the rebuilt counts already contain. Each id
// may be added once.
func (r *Restore) Giveback(ctx context.Context, id string, units int64) error {
	r.count.applied++
	return r.add(ctx, r.tmp.Applied(), id, units)
}

func (r *Restore) add(ctx context.Context, key string, values ...any) error {
	r.pending[key] = append(r.pending[key], values...)
	if len(r.pending[key]) >= r.chunk*len(values) {
		return r.flush(ctx)
	}
	return nil
}

func (r *Restore) flush(ctx context.Context) error {
	sent := false
	for _, values := range r.pending {
		sent = sent || len(values) > 0
	}
	if !sent {
		return nil
	}
	return r.store.pipeline(ctx, "write rebuilt state of sale "+r.saleID, func(p redis.Pipeliner) {
		for key, values := range r.pending {
			if len(values) == 0 {
				continue
			}
			p.HSet(ctx, key, values...)
			p.Expire(ctx, key, temporaryTTL)
			r.pending[key] = values[:0]
		}
	})
}

// Target names the era and generation a restore begins.
type Target struct {
	Era        lua.Era
	Generation int64
	Fence      uint64
	Remaining  map[string]int64 // per SKU of the sale; -1 is unlimited
	// Ends is when the whole state leaves Redis, by the clock of the server; zero is never.
	Ends time.Time
}

// check refuses what would be taken for something else: 0 is no generation,
// and a count below zero would come to mean unlimited on its way up.
func (t *Target) check() error {
	if t.Generation < 1 || len(t.Remaining) == 0 {
		return fmt.Errorf("generation %d with %d items: must have at least 1 of each", t.Generation, len(t.Remaining))
	}
	for sku, left := range t.Remaining {
		if left < sale.Unlimited {
			return fmt.Errorf("%d units of %s: must be at least 0, or %d for unlimited", left, sku, sale.Unlimited)
		}
	}
	return nil
}

// OlderGeneration says that a later reconciler was first, or that this very
// restore was carried out before.
type OlderGeneration struct {
	SaleID           string
	Present, Refused int64
}

func (e *OlderGeneration) Error() string {
	return fmt.Sprintf("sale %s is at generation %d: refused to restore %d", e.SaleID, e.Present, e.Refused)
}

// Commit switches the sale to the rebuilt state. It answers *NotLoaded when the
// server is not the one the era was minted on, *OlderGeneration when a later
// reconciler was first; the sale's state is then untouched.
func (r *Restore) Commit(ctx context.Context, t Target) error {
	if err := t.check(); err != nil {
		return fmt.Errorf("restore sale %s: %w", r.saleID, err)
	}
	skus := make([]string, 0, len(t.Remaining))
	err := r.store.pipeline(ctx, "write rebuilt stock of sale "+r.saleID, func(p redis.Pipeliner) {
		for sku, left := range t.Remaining {
			skus = append(skus, sku)
			p.Set(ctx, r.tmp.Stock(sku), left, temporaryTTL)
		}
	})
	if err != nil {
		return err
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	keys := []string{r.live.Meta()}
	live, tmp := r.live.core()[1:], r.tmp.core()[1:]
	for i := range live {
		keys = append(keys, live[i], tmp[i])
	}
	for _, sku := range skus {
		keys = append(keys, r.live.Stock(sku), r.tmp.Stock(sku))
	}
	args := []any{t.Generation, t.Fence, r.count.buyers, r.count.grants, r.count.applied, unixMilli(t.Ends)}
	forgotten, err := r.store.usedKeys(ctx, r.saleID)
	if err != nil {
		return fmt.Errorf("restore sale %s: %w", r.saleID, err)
	}
	for _, u := range r.used {
		name := u.limit.Name()
		forgotten = slices.DeleteFunc(forgotten, func(key string) bool { return key == r.live.Used(name, u.period) })
		keys = append(keys, r.live.Used(name, u.period), r.tmp.Used(name, u.period))
		args = append(args, r.usedBy[r.tmp.Used(name, u.period)], unixMilli(u.expires))
	}
	for _, key := range forgotten { // of windows that nothing counts in any more
		keys = append(keys, key, r.tmp.base+strings.TrimPrefix(key, r.live.base))
		args = append(args, 0, 0)
	}
	reply, err := r.store.run(ctx, r.saleID, lua.In(t.Era).Restore.SHA, keys, args)
	if err != nil {
		return fmt.Errorf("restore sale %s: %w", r.saleID, err)
	}
	return r.read(reply, t)
}

func (r *Restore) read(reply []any, t Target) error {
	status, err := textAt(reply, 0)
	if err != nil {
		return err
	}
	switch status {
	case "restored":
		r.store.eras.Store(r.saleID, r.store.namesOf(t.Era))
		return nil
	case "older":
		present, err := numberAt(reply, 1)
		if err != nil {
			return err
		}
		return &OlderGeneration{SaleID: r.saleID, Present: present, Refused: t.Generation}
	case "incomplete":
		key, _ := textAt(reply, 1)
		return fmt.Errorf("restore sale %s: temporary key %s is not what was written", r.saleID, key)
	default:
		return fmt.Errorf("restore sale %s: unknown code %q", r.saleID, status)
	}
}

// Abort frees the temporary keys of a restore that is given up.
func (r *Restore) Abort(ctx context.Context, skus []string) error {
	keys := r.tmp.core()
	for _, sku := range skus {
		keys = append(keys, r.tmp.Stock(sku))
	}
	for key := range r.usedBy {
		keys = append(keys, key)
	}
	if err := r.store.redis.Unlink(ctx, keys...).Err(); err != nil {
		return fmt.Errorf("abort restore of sale %s: %w", r.saleID, err)
	}
	return nil
}

// announceAttempts bounds the tries of Announce when others write to meta at the
// same time: a few reconcilers, and givebacks until the first try has closed the sale.
const announceAttempts = 100

// Announce closes the sale and notes the generation of the restore under way: from
// here on a restore of an earlier generation is refused. It answers
// *OlderGeneration, and has changed nothing, when a later one is under way or in place.
func (s *Store) Announce(ctx context.Context, saleID string, generation int64) error {
	meta := KeysOf(saleID).Meta()
	var err error
	for range announceAttempts {
		err = s.redis.Watch(ctx, func(tx *redis.Tx) error { return announce(ctx, tx, saleID, generation) }, meta)
		if !errors.Is(err, redis.TxFailedErr) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("announce generation %d of sale %s: %w", generation, saleID, err)
	}
	return nil
}

func announce(ctx context.Context, tx *redis.Tx, saleID string, generation int64) error {
	meta := KeysOf(saleID).Meta()
	found, err := tx.HMGet(ctx, meta, "gen", "next").Result()
	if err != nil {
		return err
	}
	for _, value := range found {
		// What can't be read is of no generation; restore.lua replaces it.
		text, _ := value.(string)
		if present, err := strconv.ParseInt(text, 10, 64); err == nil && present > generation {
			return &OlderGeneration{SaleID: saleID, Present: present, Refused: generation}
		}
	}
	_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HDel(ctx, meta, "era")
		p.HSet(ctx, meta, "next", generation)
		return nil
	})
	return err
}

// Close makes the sale not loaded from here on. It may be repeated.
func (s *Store) Close(ctx context.Context, saleID string) error {
	if err := s.redis.HDel(ctx, KeysOf(saleID).Meta(), "era").Err(); err != nil {
		return fmt.Errorf("close sale %s: %w", saleID, err)
	}
	return nil
}
