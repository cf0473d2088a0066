package services_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// requireSound waits until the sale is at rest and every guarantee holds.
func (w *world) requireSound(t *testing.T, saleID string) {
	t.Helper()
	var v reconcile.Verification
	eventually(t, 30*time.Second, "the sale is at rest", func() (bool, string) {
		must(t, w.rec.RelayAll(t.Context()))
		var err error
		v, err = w.rec.Verify(t.Context(), saleID)
		must(t, err)
		return v.AtRest, fmt.Sprint(v.Moving)
	})
	if !v.OK {
		t.Fatalf("guarantees are violated: %+v", v.Checks)
	}
}

// crowd lets many users grab one unit each, again and again, at both processes, at
// most once in every, until stop is called; won counts their wins.
func (w *world) crowd(t *testing.T, saleID string, users int, every time.Duration) (won *atomic.Int64, stop func()) {
	t.Helper()
	won = new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range users {
		running.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				r := grab.Request{SaleID: saleID, User: fmt.Sprintf("u%d", i), Key: fmt.Sprintf("k%d", n)}
				got, err := w.grabs[i%len(w.grabs)].Engine().Grab(ctx, r)
				if err != nil {
					t.Errorf("grab: %v", err)
					return
				}
				if got.Outcome == sale.Won {
					won.Add(1)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return won, func() { cancel(); running.Wait() }
}

func TestTakingStockAwayUnderFullLoadNeverOversells(t *testing.T) {
	w := openWorld(t, time.Second)
	id := harness.Name(t)
	const first, cuts, cut = 4000, 40, 60
	w.open(t, sale.Sale{ID: id, Items: []sale.Item{{SKU: "A", Stock: first, PriceCents: 1}}})
	won, stop := w.crowd(t, id, 64, time.Microsecond)
	var taken int64
	for n := range cuts {
		got, err := w.grabs[n%2].Engine().Take(t.Context(), grab.Adjustment{
			SaleID: id, SKU: "A", Units: cut, ID: sale.OrderID(id, "", fmt.Sprint("cut", n)), Note: "op\ntoo many",
		})
		must(t, err)
		switch got.Outcome {
		case sale.Won:
			taken += cut
		case sale.SoldOut:
			if got.Left < 0 || got.Left >= cut {
				t.Fatalf("a cut of %d was refused with %d left", cut, got.Left)
			}
		default:
			t.Fatalf("a cut was answered %+v", got)
		}
		st, err := w.store.State(t.Context(), id, []string{"A"})
		must(t, err)
		if st.Remaining["A"] < 0 {
			t.Fatalf("%d units are left", st.Remaining["A"])
		}
	}
	eventually(t, 30*time.Second, "the rest is sold", func() (bool, string) {
		st, err := w.store.State(t.Context(), id, []string{"A"})
		return err == nil && st.Remaining["A"] == 0, fmt.Sprint(st, err)
	})
	stop()
	if won.Load()+taken != first {
		t.Errorf("%d sold and %d taken away, of %d", won.Load(), taken, first)
	}
	w.requireSound(t, id)
}

func TestMoreStockWakesWhoWasToldSoldOutWithinAFifthOfASecond(t *testing.T) {
	// Without the signal of new stock, the mark would stay for a minute.
	w := openWorld(t, time.Minute)
	id := harness.Name(t)
	w.open(t, sale.Sale{ID: id, Items: []sale.Item{{SKU: "A", Stock: 1, PriceCents: 1}}})
	won, stop := w.crowd(t, id, 20, 10*time.Millisecond)
	defer stop()
	fastest := time.Hour
	for n := range 5 {
		sold := int64(n + 1)
		eventually(t, 10*time.Second, "the stock is sold", func() (bool, string) { return won.Load() == sold, fmt.Sprint(won.Load()) })
		start := time.Now()
		done, err := w.ledger.AdjustUp(t.Context(), ledger.Adjustment{SaleID: id, SKU: "A", Delta: 1, Ref: fmt.Sprint("up", n), Actor: "op"})
		must(t, err)
		must(t, w.givebacks.Return(t.Context(), *done.Giveback))
		eventually(t, 10*time.Second, "a waiting client wins", func() (bool, string) { return won.Load() == sold+1, fmt.Sprint(won.Load()) })
		fastest = min(fastest, time.Since(start))
	}
	// Of five, so that a busy machine is not taken for a slow product.
	t.Logf("from the operator's call to a win: %s", fastest)
	if fastest > 200*time.Millisecond {
		t.Errorf("it took %s until a waiting client won", fastest)
	}
}
