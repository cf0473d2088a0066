package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// hook is the fulfilment of a request; more replaces members.
func hook(more ...any) map[string]any {
	body := map[string]any{"url": "https://shop.example/hook"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// courier starts what publishes events and calls the shop.
func (p *plane) courier() {
	p.t.Helper()
	events := telemetry.NewEventMetrics(prometheus.NewRegistry(), sale.EventKindNames())
	publisher, err := order.NewPublisher(order.PublisherConfig{Interval: 10 * time.Millisecond}, p.ledger, p.stream, events, p.log)
	must(p.t, err)
	p.run("publisher", publisher.Run)
	sender, err := fulfil.New(fulfil.Config{
		Keys: [][]byte{[]byte("a key of 24 bytes or more")}, Poll: 10 * time.Millisecond,
		RetryBase: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond, DrainLimit: 100 * time.Millisecond,
	}, fulfil.Parts{
		Ledger: p.ledger, Givebacks: reconcile.NewGivebacks(p.stock, p.ledger, p.stream), Log: p.log,
		Metrics: telemetry.NewWebhookMetrics(prometheus.NewRegistry(), fulfil.Results, fulfil.Ends),
	})
	must(p.t, err)
	p.run("sender", sender.Run)
}

// receive runs the shop's system, which answers with whatever status holds.
func (p *plane) receive(status *atomic.Int64) (url string) {
	p.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	p.t.Cleanup(server.Close)
	return server.URL + "/hook?token=secret"
}

// awaitDelivery waits until the delivery of an order is in a state, and returns it.
func (p *plane) awaitDelivery(orderID, status string) reply {
	p.t.Helper()
	var r reply
	harness.Eventually(p.t, wait, "the delivery is "+status, func() (bool, string) {
		r = p.call("GET", orderPath(orderID, "delivery"), nil)
		return r.body["status"] == status, r.text
	})
	return r
}

func TestAFulfilmentIsPartOfASale(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	r := p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s", "fulfilment", hook()))
	if got := fmt.Sprint(r.body["fulfilment"]); got != "map[give_up_after:24h0m0s on_failure:park trigger:paid url:https://shop.example/hook]" {
		t.Errorf("fulfilment %s", got)
	}
	full := hook("trigger", "created", "give_up_after", "90s", "on_failure", "rollback")
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{"fulfilment": full})
	if got := fmt.Sprint(r.body["fulfilment"]); got != "map[give_up_after:1m30s on_failure:rollback trigger:created url:https://shop.example/hook]" {
		t.Errorf("fulfilment %s", got)
	}
	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil)
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{"name": "still the same", "fulfilment": hook()})
	if got := fmt.Sprint(r.body["fulfilment"]); !strings.Contains(got, "trigger:paid") {
		t.Errorf("fulfilment %s", got)
	}
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{"name": "another"})
	if r.body["fulfilment"] == nil {
		t.Error("a change that does not name the fulfilment ended it")
	}
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), `{"fulfilment":null}`)
	if got, present := r.body["fulfilment"]; present {
		t.Errorf("fulfilment %v after it was ended", got)
	}
	changes := p.pages(salePath("s", "changes?"), "changes", "field")
	if n := strings.Count(fmt.Sprint(changes), "fulfilment"); n != 2 {
		t.Errorf("the history holds %v", changes)
	}
}

func TestAnOrderThatTheShopDoesNotTakeGivesItsStockBack(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.courier()
	var status atomic.Int64
	status.Store(http.StatusInternalServerError)
	failing := hook("url", p.receive(&status), "give_up_after", "1s", "on_failure", "rollback")
	path := p.open("s", "items", []any{map[string]any{"sku": "A", "stock": 2}}, "per_user_limit", 2, "fulfilment", failing)
	engine := p.shop("s")
	id := p.buy(engine, "s", "ann", 2)
	if a, err := engine.Grab(t.Context(), grab.Request{SaleID: "s", User: "bob"}); err != nil || a.Outcome != sale.SoldOut {
		t.Fatalf("%+v, %v", a, err)
	}
	p.ok(http.StatusOK, "POST", orderPath(id, "pay"), nil)
	p.awaitStatus(id, sale.OrderRejected)

	r := p.awaitDelivery(id, "failed")
	r.has(t, "order_id", id, "sale_id", "s", "last_error", "status 500")
	if strings.Contains(r.text, "token") {
		t.Errorf("the delivery shows the whole address: %s", r.text)
	}
	p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+id, nil).has(t, "status", "rejected", "reason", "fulfilment_failed")
	p.refused(http.StatusConflict, "order_ended", "POST", orderPath(id, "delivery/resend"), nil).has(t, "order_status", "rejected")
	harness.Eventually(t, wait, "the units are for sale again", func() (bool, string) {
		r := p.ok(http.StatusOK, "GET", path, nil)
		return r.item(t).body["remaining"] == float64(2), r.text
	})
	status.Store(http.StatusOK)
	again := p.buy(engine, "s", "bob", 2)
	p.ok(http.StatusOK, "POST", orderPath(again, "pay"), nil)
	p.awaitStatus(again, sale.OrderFulfilled)
	if got := fmt.Sprint(p.pages(path+"/flows?sku=A&", "flows", "kind")); got != "[grab reject grab]" {
		t.Errorf("flows are %s", got)
	}
	p.requireSound("s")
}

func TestAParkedDeliveryIsListedAndSentAgain(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.courier()
	var status atomic.Int64
	status.Store(http.StatusGone)
	path := p.open("s", "fulfilment", hook("url", p.receive(&status)))
	engine := p.shop("s")
	var ids []string
	for i := range 4 {
		ids = append(ids, p.buy(engine, "s", fmt.Sprint("user-", i), 1))
		p.ok(http.StatusOK, "POST", orderPath(ids[i], "pay"), nil)
		p.awaitDelivery(ids[i], "parked").has(t, "attempts", 1, "last_error", "status 410")
	}
	if got := p.pages(path+"/deliveries?status=parked&", "deliveries", "order_id"); len(got) != 4 {
		t.Errorf("parked deliveries: %v", got)
	}

	status.Store(http.StatusNoContent)
	p.ok(http.StatusOK, "POST", orderPath(ids[0], "delivery/resend"), nil).has(t, "order_id", ids[0], "attempts", 0)
	p.awaitDelivery(ids[0], "delivered")
	p.awaitStatus(ids[0], sale.OrderFulfilled)
	for query, want := range map[string]int{"status=parked&": 3, "status=delivered&": 1, "status=waiting&": 0, "": 4} {
		if got := p.pages(path+"/deliveries?"+query, "deliveries", "order_id"); len(got) != want {
			t.Errorf("deliveries of %q: %v, want %d", query, got, want)
		}
	}
	p.ok(http.StatusOK, "POST", orderPath(ids[0], "delivery/resend"), nil) // the shop lost it
	p.awaitDelivery(ids[0], "delivered").has(t, "attempts", 1)

	p.ok(http.StatusOK, "POST", path+"/end", nil)
	p.ok(http.StatusOK, "POST", orderPath(ids[3], "delivery/resend"), nil)
	p.awaitDelivery(ids[3], "delivered")
	p.refused(http.StatusConflict, "sale_state", "PATCH", path, map[string]any{"fulfilment": hook(), "name": "another"})
	p.ok(http.StatusOK, "PATCH", path, `{"fulfilment":null,"reason":"the shop is closed"}`)
	p.refused(http.StatusConflict, "no_fulfilment", "POST", orderPath(ids[1], "delivery/resend"), nil)
	p.requireSound("s")
}
