package stock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"golang.org/x/sync/errgroup"
)

// annBought restores ann's grant ann1 of one unit of A.
func annBought(r *stock.Restore) error {
	ctx := context.Background()
	return errors.Join(r.Grant(ctx, "ann1", ask("ann ann1 A:1").Record), r.Buyer(ctx, "ann", 1, "ann1"))
}

// commit switches a prepared restore to generation and fence.
func (s *till) commit(r *stock.Restore, generation int64, fence uint64, remaining map[string]int64) error {
	return r.Commit(s.t.Context(), stock.Target{Era: s.era, Generation: generation, Fence: fence, Remaining: remaining})
}

func TestRestoreReplacesEverythingInOneStep(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": 7})
	s.grab("W W", 1, "cid cid1 A:1", "dan dan1 A:1")
	s.release("cancel:dan1", "dan dan1 A:1")

	ctx, r := t.Context(), s.store.BeginRestore(s.id, 2)
	for i := range 5 {
		user, order := fmt.Sprintf("u%d", i), fmt.Sprintf("o%d", i)
		err := errors.Join(
			r.Grant(ctx, order, ask(user+" "+order+" A:1").Record),
			r.Buyer(ctx, user, 1, order),
			r.Giveback(ctx, "cancel:x"+order, 2),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	live := s.dumpLive()
	if err := s.commit(r, 2, 9, map[string]int64{"A": 1, "B": -1}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(live, "u0") {
		t.Errorf("the restore was to be seen before its switch:\n%s", live)
	}
	s.requireKeys(
		"applied hash cancel:xo0=2, cancel:xo1=2, cancel:xo2=2, cancel:xo3=2, cancel:xo4=2",
		"buyers hash u0=1 o0, u1=1 o1, u2=1 o2, u3=1 o3, u4=1 o4",
		"grants hash o0=- 0|g o0 u0 A:1, o1=- 0|g o1 u1 A:1, o2=- 0|g o2 u2 A:1, o3=- 0|g o3 u3 A:1, o4=- 0|g o4 u4 A:1",
		"meta hash applied=5, buyers=5, era=ERA, fence=9, gen=2, grants=5",
		"outbox:p1 list 1/7/1/p1 cid1 dan1",
		"outboxes hash p1=0 0",
		"stock:A string 1",
		"stock:B string -1",
	)
	s.grab("W S(A)", 1, "zoe zoe1 A:1", "yan yan1 A:1")
}

// dumpLive is dump without temporary keys.
func (s *till) dumpLive() string {
	s.t.Helper()
	var live []string
	for line := range strings.SplitSeq(s.dump(), "\n") {
		if !strings.HasPrefix(line, "tmp:") {
			live = append(live, line)
		}
	}
	return strings.Join(live, "\n")
}

func TestTemporaryKeysExpireWhenTheRestoreIsAbandoned(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	r := s.store.BeginRestore(s.id, 1)
	if err := errors.Join(annBought(r), r.Giveback(t.Context(), "cancel:x", 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Del(t.Context(), scan(t, s.client, s.prefix()+"tmp:*:grants")...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.commit(r, 2, 8, units(4)); err == nil {
		t.Fatal("an incomplete restore was taken")
	}
	temporary := 0
	for line := range strings.SplitSeq(s.dump(), "\n") {
		if strings.HasPrefix(line, "tmp:") {
			temporary++
			if !strings.HasSuffix(line, " expires") {
				t.Errorf("temporary key without a TTL: %s", line)
			}
		}
	}
	if temporary != 3 { // buyers, applied, stock
		t.Errorf("%d temporary keys are left, want 3", temporary)
	}
	if err := r.Abort(t.Context(), []string{"A"}); err != nil {
		t.Fatal(err)
	}
	s.requireKeys("meta hash applied=0, buyers=0, era=ERA, fence=7, gen=1, grants=0", "stock:A string 5")
}

// prefix is what all keys of the sale begin with.
func (s *till) prefix() string { return strings.TrimSuffix(s.keys.Meta(), "meta") }

func TestIncompleteRestoreLeavesTheSaleAsItIs(t *testing.T) {
	for _, lost := range []string{"buyers", "grants", "applied"} {
		t.Run(lost, func(t *testing.T) {
			s := openTill(t, harness.Redis(t).Client(), units(5))
			s.grab("W", 1, "cid cid1 A:1")
			keys := s.dump()
			r := s.store.BeginRestore(s.id, 1)
			if err := errors.Join(annBought(r), r.Giveback(t.Context(), "cancel:x", 1)); err != nil {
				t.Fatal(err)
			}
			if err := s.client.Del(t.Context(), scan(t, s.client, s.prefix()+"tmp:*:"+lost)...).Err(); err != nil {
				t.Fatal(err)
			}
			err := s.commit(r, 2, 8, units(4))
			if err == nil || !strings.Contains(err.Error(), lost) {
				t.Fatalf("got %v, want an error that names %s", err, lost)
			}
			if after := s.dumpLive(); after != keys {
				t.Fatalf("left\n%s\nof\n%s", after, keys)
			}
			s.grab("A(cid1)", 1, "cid cid2 A:1")
		})
	}
}

func TestOneEntryTwiceIsAnIncompleteRestore(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	if err := s.tryRestore(units(3), annBought, annBought); err == nil {
		t.Fatal("a restore that counts one buyer twice was taken")
	}
	s.grab("W", 1, "ann ann1 A:1")
}

func TestOlderRestoreIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		generation int64
		fence      uint64
		older      bool
	}{
		"older generation under a later fence":     {4, 99, true},
		"same generation under an earlier fence":   {5, 49, true},
		"the same generation under the same fence": {5, 50, true},
		"same generation under a later fence":      {5, 51, false},
		"later generation":                         {6, 51, false},
		"later generation in a new stream":         {6, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTill(t, harness.Redis(t).Client(), units(5))
			if err := s.commit(s.store.BeginRestore(s.id, 1), 5, 50, units(9)); err != nil {
				t.Fatal(err)
			}
			s.grab("W", 1, "ann ann1 A:1")
			keys := s.dump()
			err := s.commit(s.store.BeginRestore(s.id, 1), c.generation, c.fence, units(7))
			var older *stock.OlderGeneration
			if errors.As(err, &older) != c.older || (err != nil && !c.older) {
				t.Fatalf("got %v, want older: %v", err, c.older)
			}
			if !c.older {
				s.grab("W", 1, "ann ann2 A:1")
				return
			}
			if older.Present != 5 || older.Refused != c.generation {
				t.Errorf("got %+v, want present 5, refused %d", older, c.generation)
			}
			if after := s.dumpLive(); after != keys {
				t.Errorf("left\n%s\nof\n%s", after, keys)
			}
		})
	}
}

// A reconciler that lost the answer to its switch might carry the same rebuilt
// state out once more. By then the sale sells on it.
func TestRestoreCarriedOutTwiceDoesNotBringSoldUnitsBack(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.restore(units(1))
	s.grab("W", 1, "ann ann1 A:1")
	err := s.commit(s.store.BeginRestore(s.id, 1), s.gen, s.fence, units(1))
	if _, ok := errors.AsType[*stock.OlderGeneration](err); !ok {
		t.Fatalf("got %v, want OlderGeneration", err)
	}
	s.grab("S(A)", 1, "bob bob1 A:1")
}

func TestClosedSaleRemembersItsGeneration(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.restore(units(5))
	for range 2 {
		if err := s.store.Close(t.Context(), s.id); err != nil {
			t.Fatal(err)
		}
	}
	var older *stock.OlderGeneration
	if err := s.commit(s.store.BeginRestore(s.id, 1), 1, 7, units(5)); !errors.As(err, &older) {
		t.Fatalf("got %v, want OlderGeneration", err)
	}
	s.requireRefused(stock.ReasonNoState)
	s.restore(units(5))
	s.grab("W", 1, "ann ann1 A:1")
}

func TestAnnouncedRestoreClosesTheSaleAndIsNotOvertakenByAnEarlierOne(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	if err := s.store.Announce(t.Context(), s.id, 6); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonNoState)
	requireOlder := func(err error) {
		t.Helper()
		if older, ok := errors.AsType[*stock.OlderGeneration](err); !ok || older.Present != 6 || older.Refused != 5 {
			t.Fatalf("got %v, want generation 5 refused for 6", err)
		}
	}
	requireOlder(s.store.Announce(t.Context(), s.id, 5))
	requireOlder(s.commit(s.store.BeginRestore(s.id, 1), 5, 50, units(5)))
	s.requireRefused(stock.ReasonNoState)
	if err := s.store.Announce(t.Context(), s.id, 6); err != nil {
		t.Fatalf("announced once more: %v", err)
	}
	if err := s.commit(s.store.BeginRestore(s.id, 1), 6, 60, units(1)); err != nil {
		t.Fatal(err)
	}
	live := s.dumpLive()
	if want := "meta hash applied=0, buyers=0, era=ERA, fence=60, gen=6, grants=0\nstock:A string 1"; live != want {
		t.Errorf("left\n%s\nwant\n%s", live, want)
	}
	requireOlder(s.store.Announce(t.Context(), s.id, 5))
	s.grab("W", 1, "ann ann1 A:1")
}

// A sale that Redis knows nothing of is announced like any other; many may do so
// at once, and the latest generation stays.
func TestOfRacingAnnouncementsTheLatestHolds(t *testing.T) {
	const last = 20
	s := openTill(t, harness.Redis(t).Client(), units(5))
	if err := s.client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for generation := range int64(last) {
		group.Go(func() error {
			err := s.store.Announce(context.Background(), s.id, generation+1)
			if _, ok := errors.AsType[*stock.OlderGeneration](err); ok {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s.requireKeys("meta hash next=20")
}

func TestRestoreInAnotherRoleHistoryIsRefused(t *testing.T) {
	server := harness.Redis(t)
	s := openTill(t, server.Client(), units(5))
	r := s.store.BeginRestore(s.id, 1)
	changeReplID(t, s.client)
	requireReason(t, s.commit(r, 2, 8, units(9)), stock.ReasonMoved)
	if left := must(s.client.Get(t.Context(), s.keys.Stock("A")).Result())(t); left != "5" {
		t.Errorf("%s units are left, want 5", left)
	}
}

func TestRestoreWithCountsThatMeanSomethingElseIsRefused(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	for name, target := range map[string]stock.Target{
		"below zero":   {Era: s.era, Generation: 2, Fence: 8, Remaining: units(-2)},
		"generation 0": {Era: s.era, Generation: 0, Fence: 8, Remaining: units(5)},
		"no items":     {Era: s.era, Generation: 2, Fence: 8},
	} {
		if err := s.store.BeginRestore(s.id, 1).Commit(t.Context(), target); err == nil {
			t.Errorf("%s: was restored", name)
		}
	}
	s.requireKeys("meta hash applied=0, buyers=0, era=ERA, fence=7, gen=1, grants=0", "stock:A string 5")
}

func TestRestoreThatDoesNotFitLeavesTheSaleAsItIs(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(sale.Unlimited))
	if err := s.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.tryRestore(units(5)); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("got %v, want OOM", err)
	}
	s.requireKeys("meta hash applied=0, buyers=0, era=ERA, fence=7, gen=1, grants=0", "stock:A string -1")
	if err := s.client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	s.restore(units(5))
}
