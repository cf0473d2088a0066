package admin_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// setStock asks for the stock of A.
func (p *plane) setStock(path, key string, units int64) reply {
	p.t.Helper()
	return p.ok(http.StatusOK, "POST", path+"/items/A/adjust", map[string]any{"stock": units, "reason": "r"}, "Idempotency-Key", key)
}

func TestSoldOutStockThatBecomesUnlimitedIsSoldAtOnce(t *testing.T) {
	p, path, engine := openShop(t, "items", []any{map[string]any{"sku": "A", "stock": 2}, map[string]any{"sku": "B", "stock": 2}},
		"per_user_limit", 0, "limits", []any{limit("user", "sale", 1)})
	p.grab(engine, "s", "ann")
	p.grab(engine, "s", "bob")
	line := []sale.Line{{SKU: "A", Quantity: 1}}
	if a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "cid", Lines: line}); err != nil || a.Outcome != sale.SoldOut {
		t.Fatalf("%+v, %v", a, err)
	}

	p.setStock(path, "open", -1).has(t, "state", "applied", "sku", "A", "requested", -1, "applied", -1, "clamped_by", 0,
		"stock_before", 2, "stock_after", -1, "replayed", false)

	for _, user := range []string{"cid", "dan", "eve"} {
		p.grabMore(engine, "s", user)
	}
	// Limits go on counting.
	if a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "ann", Lines: line}); err != nil || a.Outcome != sale.LimitExceeded {
		t.Fatalf("%+v, %v", a, err)
	}
	p.awaitSold(path, 5)
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "stock", -1, "remaining", -1, "sold", 5)
	p.refused(http.StatusConflict, admin.CodeStockUnlimited, "POST", path+"/items/A/adjust", map[string]any{"delta": 1, "reason": "r"})
	p.refused(http.StatusConflict, admin.CodeStockLimited, "POST", path+"/items/B/adjust", map[string]any{"stock": 1, "reason": "r"})
	p.requireSound("s")
}

func TestUnlimitedStockGetsABoundNeverBelowWhatIsSold(t *testing.T) {
	p, path, engine := openShop(t, "items", []any{map[string]any{"sku": "A", "stock": -1}})
	for i := range 5 {
		p.grab(engine, "s", fmt.Sprint("user", i))
	}
	bound := p.setStock(path, "bound", 3)
	bound.has(t, "requested", 3, "applied", 5, "clamped_by", 2, "stock_before", -1, "stock_after", 5, "replayed", false)
	if a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "late"}); err != nil || a.Outcome != sale.SoldOut {
		t.Fatalf("%+v, %v", a, err)
	}
	p.adjust(http.StatusOK, path, "more", 1, "r").has(t, "stock_before", 5, "stock_after", 6)
	p.grabMore(engine, "s", "late")
	p.setStock(path, "bound", 3).has(t, "applied", 5, "clamped_by", 2, "stock_before", -1, "stock_after", 5, "replayed", true,
		"adjustment_id", bound.body["adjustment_id"])
	p.awaitSold(path, 6)
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "stock", 6, "remaining", 0, "sold", 6)
	p.requireSound("s")
}

func TestAKeyIsForOneChangeOfTheStock(t *testing.T) {
	p, path, _ := openShop(t)
	p.adjust(http.StatusOK, path, "delta", 1, "r")
	p.setStock(path, "stock", -1)
	for _, other := range []struct {
		key  string
		body map[string]any
	}{
		{"delta", map[string]any{"stock": -1, "reason": "r"}}, {"stock", map[string]any{"stock": 5, "reason": "r"}},
		{"stock", map[string]any{"stock": -1, "reason": "other"}}, {"stock", map[string]any{"delta": 1, "reason": "r"}},
	} {
		p.refused(http.StatusConflict, "idempotency_mismatch", "POST", path+"/items/A/adjust", other.body, "Idempotency-Key", other.key)
	}
	p.setStock(path, "again", -1).has(t, "stock_before", -1, "stock_after", -1, "replayed", false)
	p.ok(http.StatusOK, "POST", path+"/pause", nil)
	p.setStock(path, "paused", 7).has(t, "stock_after", 7)
	p.ok(http.StatusOK, "POST", path+"/end", nil)
	p.refused(http.StatusConflict, admin.CodeSaleState, "POST", path+"/items/A/adjust", map[string]any{"stock": -1, "reason": "r"})
	p.setStock(path, "paused", 7).has(t, "stock_after", 7, "replayed", true)
	var log string
	for _, f := range p.ok(http.StatusOK, "GET", path+"/flows?sku=A", nil).list(t, "flows") {
		log += fmt.Sprintf("%v %v>%v %v; ", f["kind"], f["before"], f["after"], f["reason"])
	}
	if want := "adjust 10>11 r; stock 11>0 r (stock from 11 to unlimited); stock 0>7 r (stock from unlimited to 7); "; log != want {
		t.Errorf("the log is %s, want %s", log, want)
	}
	p.requireSound("s")
}

// Two grab processes and many buyers, and an order worker that stands still: the bound
// knows what is on its way.
func TestABoundUnderACrowdSellsExactlyItself(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	path := p.open("s", "items", []any{map[string]any{"sku": "A", "stock": -1}})
	engines := []*grab.Engine{p.shop("s"), p.shop("s")}
	var won, soldOut atomic.Int64
	stop := make(chan struct{})
	var crowd sync.WaitGroup
	for c := range 8 {
		crowd.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				a, err := engines[c%2].Grab(t.Context(), grab.Request{SaleID: "s", User: fmt.Sprintf("u%d-%d", c, i), Key: "k"})
				if err != nil {
					t.Errorf("grab: %v", err)
				}
				switch a.Outcome {
				case sale.Won:
					won.Add(1)
				case sale.SoldOut:
					soldOut.Add(1)
				}
			}
		})
	}
	reach := func(units int64) {
		harness.Eventually(t, wait, fmt.Sprint(units, " are won"), func() (bool, string) { return won.Load() >= units, fmt.Sprint(won.Load()) })
	}
	reach(300)
	before := won.Load()
	r := p.setStock(path, "below", 10)
	bound := int64(r.body["stock_after"].(float64))
	if bound < before || r.body["clamped_by"] != float64(bound-10) {
		t.Errorf("%d were won before: %s", before, r.text)
	}
	worker := p.worker()
	p.setStock(path, "open", -1)
	reach(bound + 300)
	top := won.Load() + 400
	p.setStock(path, "above", top)
	harness.Eventually(t, wait, "it is sold out", func() (bool, string) {
		return soldOut.Load() > 0 && won.Load() >= top, fmt.Sprint(won.Load(), " of ", top)
	})
	close(stop)
	crowd.Wait()
	if won.Load() != top {
		t.Errorf("%d were won, the bound is %d", won.Load(), top)
	}
	p.awaitSold(path, int(top))
	p.requireSound("s")
	worker()
	var rejected int
	must(t, p.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders WHERE status = 'rejected'").Scan(&rejected))
	if rejected != 0 {
		t.Errorf("%d orders were rejected", rejected)
	}
}
