package stock_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// many is more than one scan step returns.
const many = 2500

// openCrowd opens a till whose sale has many grants, buyers and givebacks.
func openCrowd(t *testing.T) *till {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.restore(units(5), func(r *stock.Restore) error {
		var errs []error
		for i := range many {
			order := fmt.Sprintf("o%d", i)
			errs = append(errs,
				r.Grant(t.Context(), order, ask("ann "+order+" A:1").Record),
				r.Buyer(t.Context(), fmt.Sprintf("u%d", i), int64(i+1), order),
				r.Giveback(t.Context(), "cancel:"+order, int64(i+1)),
			)
		}
		return errors.Join(errs...)
	})
	return s
}

func TestScansVisitEverything(t *testing.T) {
	s := openCrowd(t)
	grants, holdings, givebacks, owners := map[string]string{}, map[string]stock.Holding{}, map[string]int64{}, map[string]bool{}
	err := errors.Join(
		s.store.Grants(t.Context(), s.id, func(order string, g stock.Stored) error {
			grants[order] = string(g.Record)
			return nil
		}),
		s.store.Holdings(t.Context(), s.id, func(h stock.Holding) error {
			holdings[h.User] = h
			return nil
		}),
		s.store.Givebacks(t.Context(), s.id, func(id string, units int64) error {
			givebacks[id] = units
			return nil
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	few, err := s.store.Owners(t.Context(), s.id, many, func(order string) { owners[order] = true })
	if err != nil || !few {
		t.Fatalf("owners: within the limit %v, error %v", few, err)
	}
	for i := range many {
		user, order, n := fmt.Sprintf("u%d", i), fmt.Sprintf("o%d", i), int64(i+1)
		if grants[order] != string(ask("ann "+order+" A:1").Record) || !owners[order] ||
			holdings[user] != (stock.Holding{User: user, Units: n, OrderID: order}) || givebacks["cancel:"+order] != n {
			t.Fatalf("entry %d: grant %q, owner %v, holding %+v, giveback %d",
				i, grants[order], owners[order], holdings[user], givebacks["cancel:"+order])
		}
	}
	if len(grants) != many || len(holdings) != many || len(givebacks) != many || len(owners) != many {
		t.Errorf("visited %d grants, %d holdings, %d givebacks, %d owners",
			len(grants), len(holdings), len(givebacks), len(owners))
	}
}

func TestOwnersOfALargeSaleAreNotVisited(t *testing.T) {
	s := openCrowd(t)
	few, err := s.store.Owners(t.Context(), s.id, many-1, func(order string) { t.Errorf("visited %s", order) })
	if few || err != nil {
		t.Errorf("within the limit %v, error %v", few, err)
	}
}

func TestScanEndsWithTheVisitorsError(t *testing.T) {
	s := openCrowd(t)
	enough, visits := errors.New("enough"), 0
	stop := func() error {
		visits++
		return enough
	}
	for name, scan := range map[string]func() error{
		"grants": func() error {
			return s.store.Grants(t.Context(), s.id, func(string, stock.Stored) error { return stop() })
		},
		"holdings":  func() error { return s.store.Holdings(t.Context(), s.id, func(stock.Holding) error { return stop() }) },
		"givebacks": func() error { return s.store.Givebacks(t.Context(), s.id, func(string, int64) error { return stop() }) },
	} {
		visits = 0
		if err := scan(); !errors.Is(err, enough) || visits != 1 {
			t.Errorf("%s: error %v after %d visits", name, err, visits)
		}
	}
}

func TestUnreadableEntriesAreErrors(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	for _, key := range []string{s.keys.Grants(), s.keys.Buyers(), s.keys.Applied(), s.keys.Outboxes()} {
		if err := s.client.HSet(t.Context(), key, "x", "rubbish").Err(); err != nil {
			t.Fatal(err)
		}
	}
	_, outboxes := s.store.Outboxes(t.Context(), s.id)
	for name, err := range map[string]error{
		"grants":    s.store.Grants(t.Context(), s.id, func(string, stock.Stored) error { return nil }),
		"holdings":  s.store.Holdings(t.Context(), s.id, func(stock.Holding) error { return nil }),
		"givebacks": s.store.Givebacks(t.Context(), s.id, func(string, int64) error { return nil }),
		"outboxes":  outboxes,
	} {
		if err == nil {
			t.Errorf("%s: rubbish was read", name)
		}
	}
}

func TestRawTellsWhatStandsThereTrustedOrNot(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": -1})
	s.grab("W", 1, "ann ann1 A:1")
	s.release("cancel:ann1", "ann ann1 A:1")
	s.grab("W", 1, "bob bob1 A:1")
	want := stock.Raw{
		Era: string(s.era), Generation: 1, Fence: 7, Buyers: 2, Grants: 2, Applied: 1,
		Remaining: map[string]int64{"A": 4, "B": -1},
	}
	got := must(s.store.Raw(t.Context(), s.id, []string{"A", "B", "NONE"}))(t)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := s.store.Close(t.Context(), s.id); err != nil {
		t.Fatal(err)
	}
	want.Era = ""
	if got := must(s.store.Raw(t.Context(), s.id, []string{"A", "B"}))(t); !reflect.DeepEqual(got, want) {
		t.Errorf("closed: got %+v, want %+v", got, want)
	}
	got = must(s.store.Raw(t.Context(), "never-loaded", []string{"A"}))(t)
	if got.Generation != 0 || got.Grants != 0 || len(got.Remaining) != 0 {
		t.Errorf("never loaded: got %+v", got)
	}
}

// What can't be reached is an error of its own, never a sale that is not loaded.
func TestUnreachableServerIsNotASaleThatIsNotLoaded(t *testing.T) {
	server := harness.Redis(t)
	s := openTill(t, server.Client(), units(5))
	b := s.batch(1, "ann ann1 A:1")
	fresh := stock.New(s.client)
	server.Kill()
	ctx := t.Context()
	restore := s.store.BeginRestore(s.id, 1)
	calls := map[string]func() error{
		"ping":       func() error { return s.store.Ping(ctx) },
		"grab":       func() error { _, err := s.store.Grab(ctx, b); return err },
		"fresh grab": func() error { _, err := fresh.Grab(ctx, b); return err },
		"release":    func() error { return s.store.Release(ctx, s.giveback("cancel:x", "ann ann1 A:1")) },
		"state":      func() error { _, err := s.store.State(ctx, s.id, nil); return err },
		"raw":        func() error { _, err := s.store.Raw(ctx, s.id, nil); return err },
		"find":       func() error { _, _, err := s.store.Find(ctx, s.id, "ann1"); return err },
		"owners":     func() error { _, err := s.store.Owners(ctx, s.id, 1, nil); return err },
		"outboxes":   func() error { _, err := s.store.Outboxes(ctx, s.id); return err },
		"outbox":     func() error { _, err := s.store.Outbox(ctx, s.id, process, 1); return err },
		"trim":       func() error { _, err := s.store.Trim(ctx, stock.Trim{SaleID: s.id, Process: process}); return err },
		"hold":       func() error { return s.store.Hold(ctx, process, 1) },
		"alive":      func() error { _, err := s.store.Alive(ctx, process); return err },
		"leave":      func() error { return s.store.Leave(ctx, process) },
		"close":      func() error { return s.store.Close(ctx, s.id) },
		"era":        func() error { _, err := s.minter.Era(ctx, s.id); return err },
		"policy":     func() error { _, err := s.store.EvictionPolicy(ctx); return err },
		"restore":    func() error { return annBought(restore) },
		"commit":     func() error { return s.commit(restore, 2, 8, units(5)) },
		"abort":      func() error { return restore.Abort(ctx, []string{"A"}) },
		"restored":   func() error { return s.tryRestore(units(5)) },
	}
	for name, call := range calls {
		err := call()
		var refused *stock.NotLoaded
		if err == nil || errors.As(err, &refused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
