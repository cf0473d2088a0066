package admin_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// adjust changes the stock of A, with a key unless that is empty.
func (p *plane) adjust(status int, path, key string, delta int64, reason string) reply {
	p.t.Helper()
	var header []string
	if key != "" {
		header = []string{"Idempotency-Key", key}
	}
	return p.ok(status, "POST", path+"/items/A/adjust", map[string]any{"delta": delta, "reason": reason}, header...)
}

// openShop opens a sale s of 10 of A with everything running.
func openShop(t testing.TB, more ...any) (*plane, string, *grab.Engine) {
	t.Helper()
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	path := p.open("s", more...)
	return p, path, p.shop("s")
}

// awaitSold waits until the ledger has sold some units of the first item.
func (p *plane) awaitSold(path string, units int) {
	p.t.Helper()
	harness.Eventually(p.t, wait, fmt.Sprintf("%d units are sold", units), func() (bool, string) {
		r := p.ok(http.StatusOK, "GET", path, nil)
		return r.item(p.t).body["sold"] == float64(units), r.text
	})
}

func TestStockGoesUpAndIsSoldAtOnce(t *testing.T) {
	p, path, engine := openShop(t)
	for i := range 10 {
		p.grab(engine, "s", fmt.Sprint("user", i))
	}
	if a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "late"}); err != nil || a.Outcome != sale.SoldOut {
		t.Fatalf("%+v, %v", a, err)
	}
	r := p.adjust(http.StatusOK, path, "k", 5, "found in the back")
	r.has(t, "state", "applied", "sale_id", "s", "sku", "A", "requested", 5, "applied", 5, "clamped_by", 0, "stock_before", 10, "stock_after", 15, "replayed", false)
	p.grabMore(engine, "s", "late")
	p.awaitSold(path, 11)
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "stock", 15, "remaining", 4, "granted", 11)
	p.adjust(http.StatusOK, path, "k", 5, "found in the back").
		has(t, "requested", 5, "applied", 5, "stock_before", 10, "stock_after", 15, "replayed", true, "adjustment_id", r.body["adjustment_id"])
	p.requireSound("s")
}

func TestStockGoesDownAndNeverBelowWhatIsSold(t *testing.T) {
	p, path, engine := openShop(t)
	for i := range 3 {
		p.grab(engine, "s", fmt.Sprint("user", i))
	}
	p.adjust(http.StatusOK, path, "few", -2, "broken").
		has(t, "state", "applied", "requested", -2, "applied", -2, "clamped_by", 0, "stock_before", 10, "stock_after", 8, "replayed", false)
	many := p.adjust(http.StatusOK, path, "many", -1_000_000_000, "all broken")
	many.has(t, "requested", -1_000_000_000, "applied", -5, "clamped_by", 999_999_995, "stock_before", 8, "stock_after", 3, "replayed", false)
	p.adjust(http.StatusOK, path, "none", -1, "more").
		has(t, "state", "applied", "applied", 0, "clamped_by", 1, "stock_before", 3, "stock_after", 3, "replayed", false)
	p.adjust(http.StatusOK, path, "many", -1_000_000_000, "all broken").
		has(t, "applied", -5, "clamped_by", 999_999_995, "stock_before", 8, "stock_after", 3, "replayed", true, "adjustment_id", many.body["adjustment_id"])
	p.awaitSold(path, 3)
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "stock", 3, "remaining", 0, "sold", 3)

	flows := p.ok(http.StatusOK, "GET", path+"/flows?sku=A", nil).list(t, "flows")
	var steps string
	for _, f := range flows {
		if f["kind"] == "adjust" {
			steps += fmt.Sprintf("%v %v by %v; ", f["step"], f["reason"], f["actor"])
		}
	}
	if want := "-2 broken by operator; -5 all broken (asked for -1000000000, clamped to -5) by operator; "; steps != want {
		t.Errorf("flows say %q, want %q", steps, want)
	}
	p.requireSound("s")
}

func TestAKeyIsForOneAdjustmentOfOneItem(t *testing.T) {
	p, path, _ := openShop(t, "items", []any{map[string]any{"sku": "A", "stock": 10}, map[string]any{"sku": "B", "stock": 10}})
	p.adjust(http.StatusOK, path, "up", 1, "r")
	p.adjust(http.StatusOK, path, "down", -20, "r").has(t, "applied", -11)
	for _, other := range []struct {
		key    string
		delta  int64
		reason string
	}{{"up", 2, "r"}, {"up", 1, "other"}, {"up", -1, "r"}, {"down", -11, "r"}, {"down", -21, "r"}, {"down", -20, "other"}, {"down", 20, "r"}} {
		p.refused(http.StatusConflict, "idempotency_mismatch", "POST", path+"/items/A/adjust",
			map[string]any{"delta": other.delta, "reason": other.reason}, "Idempotency-Key", other.key).has(t, "field", "Idempotency-Key")
	}
	p.ok(http.StatusOK, "POST", path+"/items/B/adjust", map[string]any{"delta": 3, "reason": "r"}, "Idempotency-Key", "up").
		has(t, "sku", "B", "applied", 3, "replayed", false)
	for range 2 {
		p.adjust(http.StatusOK, path, "", 4, "each is another without a key").has(t, "applied", 4, "replayed", false)
	}
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "sku", "A", "stock", 8, "remaining", 8)
	p.requireSound("s")
}

func TestAUserCalledLikeAnAdjustmentTakesNothingFromIt(t *testing.T) {
	p, path, engine := openShop(t)
	for _, user := range []string{"adjust", "operator", "adjustA"} {
		a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: user, Key: "k"})
		if err != nil || a.Outcome != sale.Won || a.Replayed {
			t.Errorf("%s: %+v, %v", user, a, err)
		}
	}
	p.adjust(http.StatusOK, path, "k", -1, "r").has(t, "applied", -1, "replayed", false)
	p.requireSound("s")
}

func TestTheSameAdjustmentAtOnceHappensOnce(t *testing.T) {
	p, path, engine := openShop(t)
	for _, delta := range []int64{7, -4, -1000} {
		key := fmt.Sprint("k", delta)
		var fresh atomic.Int64
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				r := p.call("POST", path+"/items/A/adjust", map[string]any{"delta": delta, "reason": "r"}, "Idempotency-Key", key)
				if r.status != http.StatusOK {
					t.Errorf("%d: %d %s", delta, r.status, r.text)
				}
				if r.body["replayed"] == false {
					fresh.Add(1)
				}
			})
		}
		clients.Wait()
		if fresh.Load() != 1 {
			t.Errorf("adjusting by %d happened first %d times", delta, fresh.Load())
		}
	}
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "stock", 0, "remaining", 0)
	if a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "ann"}); err != nil || a.Outcome != sale.SoldOut {
		t.Errorf("%+v, %v", a, err)
	}
	p.requireSound("s")
}

func TestAdjustingWhileACrowdGrabsSellsExactlyTheStock(t *testing.T) {
	p, path, engine := openShop(t, "items", []any{map[string]any{"sku": "A", "stock": 300}})
	var won atomic.Int64
	var crowd sync.WaitGroup
	for c := range 8 {
		crowd.Go(func() {
			for i := range 100 {
				a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: fmt.Sprintf("u%d-%d", c, i), Key: "k"})
				if err != nil {
					t.Errorf("grab: %v", err)
				}
				if a.Outcome == sale.Won {
					won.Add(1)
				}
			}
		})
	}
	change := int64(0)
	for i, delta := range []int64{-20, 35, -10, -1000, 5, 50, -7} {
		r := p.adjust(http.StatusOK, path, fmt.Sprint("k", i), delta, "r")
		applied, clamped := int64(r.body["applied"].(float64)), int64(r.body["clamped_by"].(float64))
		if delta > 0 && applied != delta || delta < 0 && applied-clamped != delta {
			t.Errorf("adjusting by %d: %s", delta, r.text)
		}
		change += applied
	}
	crowd.Wait()
	p.awaitSold(path, int(won.Load()))
	item := p.ok(http.StatusOK, "GET", path, nil).item(t)
	item.has(t, "stock", int(300+change))
	if item.body["remaining"].(float64) != float64(300+change-won.Load()) {
		t.Errorf("won %d, changed by %d: %s", won.Load(), change, item.text)
	}
	p.requireSound("s")
}

func TestAnAdjustmentWaitsForNoWorker(t *testing.T) {
	p := openPlane(t, admin.Config{RecordTimeout: 50 * time.Millisecond})
	p.reconciler()
	path := p.open("s")
	first := p.adjust(http.StatusAccepted, path, "k", -12, "r")
	first.has(t, "state", "pending", "applied", -10, "clamped_by", 2, "stock_before", nil, "stock_after", nil, "replayed", false)
	p.adjust(http.StatusAccepted, path, "k", -12, "r").has(t, "state", "pending", "applied", -10, "replayed", true)
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "stock", 10, "remaining", 0)
	p.worker()
	harness.Eventually(t, wait, "the ledger has the reduction", func() (bool, string) {
		r := p.call("POST", path+"/items/A/adjust", map[string]any{"delta": -12, "reason": "r"}, "Idempotency-Key", "k")
		if r.status == http.StatusOK {
			r.has(t, "state", "applied", "applied", -10, "clamped_by", 2, "stock_before", 10, "stock_after", 0, "replayed", true,
				"adjustment_id", first.body["adjustment_id"])
		}
		return r.status == http.StatusOK, r.text
	})
}

func TestASaleThatIsNotLoadedGoesUpAndNotDown(t *testing.T) {
	p := openPlane(t, admin.Config{LoadTimeout: 50 * time.Millisecond})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil).has(t, "state", "not_loaded")
	r := p.refused(http.StatusServiceUnavailable, "not_loaded", "POST", salePath("s", "items", "A", "adjust"), map[string]any{"delta": -1, "reason": "r"})
	if r.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
	}
	p.adjust(http.StatusOK, salePath("s"), "k", 5, "r").has(t, "applied", 5, "stock_after", 15)
	p.reconciler()
	p.worker()
	harness.Eventually(t, wait, "the sale is loaded with the units", func() (bool, string) {
		r := p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil)
		return r.item(t).body["remaining"] == 15.0, r.text
	})
	p.requireSound("s")
}

func TestNothingIsAdjustedAfterTheEnd(t *testing.T) {
	p, path, _ := openShop(t)
	p.adjust(http.StatusOK, path, "k", 1, "r")
	p.ok(http.StatusOK, "POST", path+"/pause", nil)
	p.adjust(http.StatusOK, path, "paused", -1, "r").has(t, "applied", -1)
	p.ok(http.StatusOK, "POST", path+"/end", nil)
	for _, delta := range []int64{1, -1} {
		p.refused(http.StatusConflict, admin.CodeSaleState, "POST", path+"/items/A/adjust", map[string]any{"delta": delta, "reason": "r"}).
			has(t, "sale_status", "ended")
	}
	p.adjust(http.StatusOK, path, "k", 1, "r").has(t, "applied", 1, "replayed", true)
}
