package admin_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// pages follows a listing to its end and returns one member of each entry.
func (p *plane) pages(path, name, member string) []any {
	p.t.Helper()
	var all []any
	cursor := ""
	for {
		r := p.ok(http.StatusOK, "GET", path+"limit=3&cursor="+cursor, nil)
		page := r.list(p.t, name)
		for _, entry := range page {
			all = append(all, entry[member])
		}
		next, more := r.body["next_cursor"].(string)
		if !more {
			return all
		}
		if len(page) != 3 {
			p.t.Fatalf("a page that is not the last one: %s", r.text)
		}
		cursor = next
	}
}

func TestTheBooksAreReadInPages(t *testing.T) {
	p, path, engine := openShop(t)
	ids := make(map[any]bool)
	for i := range 7 {
		ids[p.grab(engine, "s", fmt.Sprint("user", i))] = true
	}
	p.awaitSold(path, 7)
	p.ok(http.StatusOK, "POST", "/admin/v1/orders/"+sale.OrderID("s", "user3", "k")+"/cancel", map[string]any{"reason": "asked to"})

	orders := p.pages(path+"/orders?", "orders", "order_id")
	for _, id := range orders {
		delete(ids, id)
	}
	if len(orders) != 7 || len(ids) != 0 {
		t.Errorf("orders %v, without %v", orders, ids)
	}
	for query, want := range map[string]int{"status=cancelled&": 1, "status=pending_payment&": 6, "status=paid&": 0, "user=user3&": 1, "user=user3&status=paid&": 0, "user=nobody&": 0} {
		if got := p.pages(path+"/orders?"+query, "orders", "order_id"); len(got) != want {
			t.Errorf("orders of %s: %v, want %d", query, got, want)
		}
	}
	if got := fmt.Sprint(p.pages(path+"/flows?sku=A&", "flows", "after")); got != "[9 8 7 6 5 4 3 4]" {
		t.Errorf("flows end at %s", got)
	}
	kinds := p.pages(path+"/flows?", "flows", "kind")
	if len(kinds) != 8 || kinds[6] != "grab" || kinds[7] != "cancel" {
		t.Errorf("flows are %v", kinds)
	}
	p.requireSound("s")
}

func TestAnOperatorCancelsAnOrderAndItsStockComesBack(t *testing.T) {
	p, path, engine := openShop(t)
	id := p.grab(engine, "s", "ann")
	p.awaitSold(path, 1)
	p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+id, nil).has(t, "order_id", id, "sale_id", "s", "user", "ann", "status", "pending_payment")
	for range 2 {
		p.ok(http.StatusOK, "POST", "/admin/v1/orders/"+id+"/cancel", nil).has(t, "status", "cancelled")
	}
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "remaining", 10, "granted", 1, "returned", 1, "sold", 0)
	p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+id, nil).has(t, "status", "cancelled")

	other := p.grab(engine, "s", "bob")
	p.awaitSold(path, 1)
	_, _, err := p.ledger.Cancel(t.Context(), other, "user", "")
	must(t, err)
	p.refused(http.StatusConflict, "order_not_cancellable", "POST", "/admin/v1/orders/"+other+"/cancel", nil).has(t, "order_status", "cancelled")
	p.requireSound("s")
}

func TestAnOrderIsShownBeforeItIsWritten(t *testing.T) {
	p := openPlane(t, admin.Config{RecordTimeout: 20 * time.Millisecond})
	p.reconciler()
	path := p.open("s")
	id := p.grab(p.shop("s"), "s", "ann")
	harness.Eventually(t, wait, "the order is processing", func() (bool, string) {
		r := p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+id, nil)
		r.has(t, "order_id", id, "user", "ann")
		return r.body["status"] == "processing", r.text
	})
	adjustment, _ := p.adjust(http.StatusAccepted, path, "k", -1, "r").body["adjustment_id"].(string)
	p.refused(http.StatusNotFound, admin.CodeOrderNotFound, "GET", "/admin/v1/orders/"+adjustment, nil)
	must(t, p.stock.Close(t.Context(), "s"))
	p.refused(http.StatusServiceUnavailable, "not_loaded", "GET", "/admin/v1/orders/"+sale.OrderID("s", "bob", "k"), nil)
}

// bury puts a grab of one unit of an item into the dead letters, as the order
// worker does with what it can't write.
func (p *plane) bury(user, sku string) string {
	p.t.Helper()
	g := sale.Grant{
		Kind: sale.GrantGrab, OrderID: sale.OrderID("s", user, "k"), User: user, Key: "k", IP: "192.0.2.1",
		At: time.Now(), ExpiresAt: time.Now().Add(time.Hour), Lines: []sale.Line{{SKU: sku, Quantity: 1, PriceCents: 5}},
	}
	must(p.t, p.ledger.BuryDead(p.t.Context(), ledger.DeadLetter{
		SaleID: "s", OrderID: g.OrderID, StreamID: 1, Seq: 7, Generation: 1, Reason: "could not be written", Attempts: 8, Record: sale.AppendGrant(nil, &g),
	}))
	return g.OrderID
}

func TestDeadLettersAreReplayedOrCancelled(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	ann, bob, poison := p.bury("ann", "A"), p.bury("bob", "A"), p.bury("eve", "unknown")
	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil).item(t).has(t, "remaining", 8)
	path := salePath("s", "dead-letters")
	letters := p.ok(http.StatusOK, "GET", path, nil).list(t, "dead_letters")
	if len(letters) != 3 || letters[0]["status"] != "open" || letters[0]["reason"] != "could not be written" || letters[0]["attempts"] != 8.0 {
		t.Errorf("dead letters: %v", letters)
	}
	if got := p.pages(path+"?", "dead_letters", "order_id"); len(got) != 3 {
		t.Errorf("dead letters in pages: %v", got)
	}
	for range 2 {
		p.ok(http.StatusOK, "POST", path+"/"+ann+"/replay", nil).has(t, "order_id", ann, "sale_id", "s", "status", "replayed", "user", "ann")
		p.ok(http.StatusOK, "POST", path+"/"+bob+"/cancel", map[string]any{"reason": "too late"}).has(t, "order_id", bob, "status", "cancelled")
	}
	p.refused(http.StatusConflict, admin.CodeDeadLetterState, "POST", path+"/"+ann+"/cancel", nil).has(t, "dead_letter_status", "replayed")
	p.refused(http.StatusConflict, admin.CodeDeadLetterState, "POST", path+"/"+bob+"/replay", nil).has(t, "dead_letter_status", "cancelled")
	p.refused(http.StatusConflict, admin.CodeDeadLetterPoison, "POST", path+"/"+poison+"/replay", nil)
	p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+ann, nil).has(t, "status", "pending_payment")
	p.ok(http.StatusOK, "GET", "/admin/v1/orders/"+bob, nil).has(t, "status", "cancelled")
	p.ok(http.StatusOK, "GET", salePath("s"), nil).item(t).has(t, "sold", 1, "remaining", 9)
}

func TestAReconcileIsAskedForAndReportsWhatItDid(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	_, err := p.ledger.UpdateStatus(t.Context(), "s", []sale.Status{sale.StatusDraft}, sale.StatusApproved)
	must(t, err)
	r := p.refused(http.StatusServiceUnavailable, "unavailable", "POST", salePath("s", "reconcile"), nil)
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	p.reconciler()
	harness.Eventually(t, wait, "a reconciler answers", func() (bool, string) {
		r := p.call("POST", salePath("s", "reconcile"), map[string]any{"reason": "to be sure"})
		return r.status == http.StatusOK, r.text
	})
	p.ok(http.StatusOK, "POST", salePath("s", "reconcile"), nil).has(t, "sale_id", "s", "result", "healthy")
	before := p.ok(http.StatusOK, "GET", salePath("s"), nil).body["generation"].(float64)
	p.ok(http.StatusOK, "POST", salePath("s", "reconcile?force"), nil).has(t, "reason", "forced", "result", "restored")
	p.ok(http.StatusOK, "POST", salePath("s", "reconcile?force=false"), nil).has(t, "result", "healthy")
	p.ok(http.StatusOK, "GET", salePath("s"), nil).has(t, "generation", int(before)+1, "state", "loaded")
}

func TestAVerificationTellsOfABrokenGuarantee(t *testing.T) {
	p, path, engine := openShop(t)
	p.grab(engine, "s", "ann")
	p.awaitSold(path, 1)
	p.requireSound("s")
	_, err := p.db.ExecContext(t.Context(), "DELETE FROM flows")
	must(t, err)
	r := p.ok(http.StatusOK, "GET", path+"/verify", nil)
	r.has(t, "ok", false, "sale_id", "s")
	broken := 0
	for _, check := range r.list(t, "checks") {
		if check["ok"] == false {
			broken++
		}
	}
	if broken == 0 {
		t.Errorf("no check failed: %s", r.text)
	}
}

func TestTwoEnginesOfOneSaleShareItsStock(t *testing.T) {
	p, path, engine := openShop(t)
	second := p.shop("s")
	p.grab(engine, "s", "ann")
	p.grab(second, "s", "bob")
	p.adjust(http.StatusOK, path, "k", -20, "r").has(t, "applied", -8)
	for _, e := range []*grab.Engine{engine, second} {
		if a, err := e.Grab(t.Context(), grab.Request{SaleID: "s", User: "late"}); err != nil || a.Outcome != sale.SoldOut {
			t.Errorf("%+v, %v", a, err)
		}
	}
	p.requireSound("s")
}
