package admin_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// expiry starts what ends unpaid orders.
func (p *plane) expiry() {
	p.t.Helper()
	e, err := order.NewExpiry(order.ExpiryConfig{Interval: 20 * time.Millisecond}, p.ledger,
		reconcile.NewGivebacks(p.stock, p.ledger, p.stream), nil, telemetry.NewExpiryMetrics(prometheus.NewRegistry(), order.ExpiryReasons), p.log)
	must(p.t, err)
	p.run("expiry", e.Run)
}

// buy wins units of A for a user and waits until the order is written.
func (p *plane) buy(engine *grab.Engine, saleID, user string, quantity int64) string {
	p.t.Helper()
	a, err := engine.Grab(p.t.Context(), grab.Request{SaleID: saleID, User: user, Key: "k", Lines: []sale.Line{{SKU: "A", Quantity: quantity}}})
	must(p.t, err)
	if a.Outcome != sale.Won {
		p.t.Fatalf("grab of %s: %+v", user, a)
	}
	p.awaitStatus(a.OrderID, sale.OrderPendingPayment)
	return a.OrderID
}

func (p *plane) awaitStatus(orderID string, want sale.OrderStatus) {
	p.t.Helper()
	harness.Eventually(p.t, wait, "the order is "+string(want), func() (bool, string) {
		o, err := p.ledger.GetOrder(p.t.Context(), orderID)
		return err == nil && o.Status == want, fmt.Sprint(o.Status, err)
	})
}

// requireRemaining holds what Redis has left of A.
func (p *plane) requireRemaining(saleID string, units int) {
	p.t.Helper()
	p.ok(http.StatusOK, "GET", salePath(saleID), nil).item(p.t).has(p.t, "remaining", units)
}

func orderPath(id, verb string) string { return "/admin/v1/orders/" + id + "/" + verb }

// back is the body of a return of units of A.
func back(id string, units int) map[string]any {
	return map[string]any{"return_id": id, "items": []any{map[string]any{"sku": "A", "quantity": units}}, "reason": "does not fit"}
}

func TestAPaidOrderComesBackInPartsAndItsStockIsSoldAgain(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.open("s", "per_user_limit", 4)
	engine := p.shop("s")
	id := p.buy(engine, "s", "ann", 4)

	p.refused(http.StatusConflict, admin.CodeOrderNotPaid, "POST", orderPath(id, "returns"), back("r1", 1)).
		has(t, "order_status", "pending_payment")
	for range 2 {
		p.ok(http.StatusOK, "POST", orderPath(id, "pay"), nil).has(t, "status", "paid", "order_id", id)
	}
	for range 2 {
		r := p.ok(http.StatusOK, "POST", orderPath(id, "returns"), back("r1", 1))
		if returned := r.list(t, "items")[0]["returned"]; returned != 1.0 {
			t.Errorf("%v units came back, want 1", returned)
		}
		p.requireRemaining("s", 7)
	}
	p.refused(http.StatusConflict, admin.CodeReturnIDReused, "POST", orderPath(id, "returns"), back("r1", 2))
	p.refused(http.StatusConflict, admin.CodeReturnExceedsOrder, "POST", orderPath(id, "returns"), back("r2", 4)).
		has(t, "sku", "A", "left", 3)
	p.ok(http.StatusOK, "POST", orderPath(id, "returns"), back("r2", 3)).has(t, "status", "paid")
	p.requireRemaining("s", 10)
	again, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "ann", Key: "k2", Lines: []sale.Line{{SKU: "A", Quantity: 4}}})
	must(t, err)
	if again.Outcome != sale.Won {
		t.Errorf("who gave everything back grabs again: %+v", again)
	}
	p.requireSound("s")
}

func TestAnOperatorRollsAPaidOrderBackOnce(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.open("s", "per_user_limit", 4)
	id := p.buy(p.shop("s"), "s", "ann", 4)
	p.ok(http.StatusOK, "POST", orderPath(id, "pay"), nil).has(t, "status", "paid")
	for range 2 {
		p.ok(http.StatusOK, "POST", orderPath(id, "cancel"), nil).has(t, "status", "cancelled", "reason", "admin")
		p.requireRemaining("s", 10)
	}
	p.requireSound("s")
}

// TestWhetherABuyerMayGrabAgainIsTheSalesSetting has users whose orders came back, each
// in another way, grab once more: before and after Redis has lost everything.
func TestWhetherABuyerMayGrabAgainIsTheSalesSetting(t *testing.T) {
	for regrab, want := range map[bool]sale.Outcome{true: sale.Won, false: sale.AlreadyGrabbed} {
		t.Run(fmt.Sprint("regrab=", regrab), func(t *testing.T) {
			p := openPlane(t, admin.Config{})
			p.reconciler()
			p.worker()
			p.open("s", "payment_window", "1s", "regrab_after_cancel", regrab)
			engine := p.shop("s")
			cancelled, returned, expired := p.buy(engine, "s", "ann", 1), p.buy(engine, "s", "bob", 1), p.buy(engine, "s", "eve", 1)
			p.ok(http.StatusOK, "POST", orderPath(cancelled, "cancel"), nil)
			p.ok(http.StatusOK, "POST", orderPath(returned, "pay"), nil)
			p.ok(http.StatusOK, "POST", orderPath(returned, "returns"), back("r1", 1))
			p.expiry()
			p.awaitStatus(expired, sale.OrderExpired)
			p.requireSound("s")
			p.requireRemaining("s", 10)
			again := func(user string) sale.Outcome {
				a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: user, Key: "k2", Lines: []sale.Line{{SKU: "A", Quantity: 1}}})
				must(t, err)
				return a.Outcome
			}
			if got := again("ann"); got != want {
				t.Errorf("who cancelled is answered %s, want %s", got, want)
			}
			must(t, p.redis.Client().FlushAll(t.Context()).Err())
			p.ok(http.StatusOK, "POST", salePath("s", "reconcile"), nil)
			for _, user := range []string{"bob", "eve"} {
				if got := again(user); got != want {
					t.Errorf("%s is answered %s after Redis was restored, want %s", user, got, want)
				}
			}
			p.requireSound("s")
		})
	}
}

func TestAPaymentThatComesTooLateIsToldWhy(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.open("s", "payment_window", "1s")
	engine := p.shop("s")
	cancelled, expired := p.buy(engine, "s", "ann", 1), p.buy(engine, "s", "bob", 1)
	p.ok(http.StatusOK, "POST", orderPath(cancelled, "cancel"), nil).has(t, "status", "cancelled", "reason", "admin")
	p.expiry()
	p.awaitStatus(expired, sale.OrderExpired)

	for range 2 {
		p.refused(http.StatusConflict, admin.CodeOrderCancelled, "POST", orderPath(cancelled, "pay"), nil).has(t, "order_status", "cancelled", "detail", "the order was cancelled; a late payment is noted and has to be refunded")
		p.refused(http.StatusConflict, admin.CodeOrderExpired, "POST", orderPath(expired, "pay"), nil).has(t, "order_status", "expired", "detail", "the order was not paid in time and has expired; a late payment is noted and has to be refunded")
	}
	r := p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+expired, nil)
	r.has(t, "status", "expired", "reason", "payment_timeout")
	if r.body["late_payment_at"] == nil {
		t.Errorf("the order does not tell of the late payment: %s", r.text)
	}
	p.requireSound("s")
	p.requireRemaining("s", 10)
}

func TestAnOrderThatIsNotWrittenYetIsToBeTriedAgain(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.open("s")
	engine := p.shop("s")
	id := p.grab(engine, "s", "ann")
	for verb, body := range map[string]any{"pay": nil, "cancel": nil, "returns": back("r1", 1)} {
		r := p.refused(http.StatusConflict, "order_processing", "POST", orderPath(id, verb), body)
		if status := r.body["order_status"]; status != "pending" && status != "processing" {
			t.Errorf("%s: the order is %v", verb, status)
		}
		if r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", verb)
		}
	}
	p.worker()
	p.awaitStatus(id, sale.OrderPendingPayment)
	p.ok(http.StatusOK, "POST", orderPath(id, "pay"), nil).has(t, "status", "paid")
}

// TestHoweverOrdersEndTogetherEachEndsOnceAndTheStockAgrees has every order paid,
// cancelled, returned and expired at about the same moment, by several processes.
func TestHoweverOrdersEndTogetherEachEndsOnceAndTheStockAgrees(t *testing.T) {
	const users = 80
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.open("s", "payment_window", "2s", "per_user_limit", 2, "items", []any{map[string]any{"sku": "A", "stock": 2 * users}})
	engine := p.shop("s")
	var running sync.WaitGroup
	for i := range users {
		running.Go(func() {
			a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: fmt.Sprint("user-", i), Key: "k", Lines: []sale.Line{{SKU: "A", Quantity: 2}}})
			if err != nil || a.Outcome != sale.Won {
				t.Errorf("grab: %+v %v", a, err)
			}
		})
	}
	running.Wait()
	ids := make([]string, users)
	for i := range ids {
		ids[i] = sale.OrderID("s", fmt.Sprint("user-", i), "k")
		p.awaitStatus(ids[i], sale.OrderPendingPayment)
	}
	p.expiry()
	p.expiry()
	for i, id := range ids {
		// Some of the calls for every order; what nobody ends expires.
		for n, call := range map[int]func(){
			0: func() { p.call("POST", orderPath(id, "pay"), nil) },
			1: func() { p.call("POST", orderPath(id, "cancel"), nil) },
			2: func() { p.call("POST", orderPath(id, "returns"), back("r1", 1)) },
			3: func() { p.call("POST", orderPath(id, "returns"), back("r2", 2)) },
		} {
			if i>>n&1 == 1 {
				running.Go(call)
				running.Go(call)
			}
		}
	}
	running.Wait()
	harness.Eventually(t, wait, "no order waits for its payment", func() (bool, string) {
		var n int
		err := p.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders WHERE status = 'pending_payment'").Scan(&n)
		return err == nil && n == 0, fmt.Sprint(n, err)
	})
	var held int64
	ends := make(map[sale.OrderStatus]int)
	for _, id := range ids {
		o, err := p.ledger.GetOrder(t.Context(), id)
		must(t, err)
		ends[o.Status]++
		held += o.Lines[0].Quantity - o.Lines[0].Returned
	}
	if ends[sale.OrderPaid] == 0 || ends[sale.OrderCancelled] == 0 || ends[sale.OrderExpired] == 0 {
		t.Errorf("the orders ended as %v: there was no contest", ends)
	}
	p.requireSound("s")
	p.requireRemaining("s", int(2*users-held))
}
