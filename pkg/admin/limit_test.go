package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func limit(scope, window string, most int64) map[string]any {
	return map[string]any{"scope": scope, "window": window, "max": most}
}

// change changes the sale, and waits until the grab process knows.
func (p *plane) change(engine *grab.Engine, path string, body map[string]any) reply {
	p.t.Helper()
	r := p.ok(http.StatusOK, "PATCH", path, body)
	harness.Eventually(p.t, wait, "the grab process has the change", func() (bool, string) {
		s, _ := engine.Sale("s")
		return float64(s.Revision) == r.body["revision"], fmt.Sprint(s.Revision)
	})
	return r
}

// tries is the outcome of a grab of one unit, with the limit that refused it.
func (p *plane) tries(engine *grab.Engine, user string) string {
	p.t.Helper()
	a, err := engine.Grab(p.t.Context(), grab.Request{SaleID: "s", User: user, IP: "203.0.113.1"})
	must(p.t, err)
	return strings.TrimSpace(fmt.Sprint(a.Outcome, " ", a.Limit))
}

func (p *plane) expect(engine *grab.Engine, user, outcome string) {
	p.t.Helper()
	if got := p.tries(engine, user); got != outcome {
		p.t.Fatalf("%s hears %q, want %q", user, got, outcome)
	}
}

func TestADraftGetsAndLosesLimitsAndAnApprovedSaleChangesTheirMaxima(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	shown := func(r reply, want string) {
		t.Helper()
		var got []string
		for _, l := range r.list(t, "limits") {
			got = append(got, fmt.Sprint(l["scope"], "_", l["window"], "=", l["max"]))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("limits %v, want %s", got, want)
		}
	}
	r := p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	shown(r, "")
	r.has(t, "rate_limit", 0, "regrab_after_cancel", true)
	if strings.Contains(r.text, "no_regrab") {
		t.Errorf("a word of our own: %s", r.text)
	}
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{
		"limits": []any{limit("user", "day", 2), limit("ip", "sale", 9), limit("sale", "month", 50)}, "rate_limit": 100, "regrab_after_cancel": false,
	})
	shown(r, "user_day=2 ip_sale=9 sale_month=50")
	r.has(t, "rate_limit", 100, "regrab_after_cancel", false, "revision", 2)
	shown(p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{"limits": []any{limit("user", "day", 2), limit("ip", "sale", 9)}}), "user_day=2 ip_sale=9")

	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil)
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{
		"limits": []any{limit("ip", "sale", 1), limit("user", "day", 20)}, "rate_limit": 0, "regrab_after_cancel": true, "per_user_limit": 5,
	})
	shown(r, "user_day=20 ip_sale=1")
	r.has(t, "rate_limit", 0, "regrab_after_cancel", true, "per_user_limit", 5)
	p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{"per_user_limit": 2}).has(t, "per_user_limit", 2)
	seen, err := p.stream.GetSale(t.Context(), "s")
	must(t, err)
	if seen.PerUserLimit != 2 || seen.NoRegrab || fmt.Sprint(seen.Limits) != "[{user day 20} {ip sale 1}]" {
		t.Errorf("the catalogue has %+v", seen)
	}
	for _, others := range [][]any{{}, {limit("user", "day", 2)}, {limit("user", "day", 2), limit("ip", "day", 9)},
		{limit("user", "day", 2), limit("ip", "sale", 9), limit("sale", "sale", 9)}} {
		p.refused(http.StatusConflict, admin.CodeSaleNotDraft, "PATCH", salePath("s"), map[string]any{"limits": others}).
			has(t, "field", "limits", "sale_status", "approved")
	}
}

func TestALimitChangesLiveAndNothingIsTakenBack(t *testing.T) {
	p, path, engine := openShop(t, "per_user_limit", 0, "limits", []any{limit("user", "day", 2)})
	p.expect(engine, "ann", "won")
	p.expect(engine, "ann", "won")
	p.expect(engine, "ann", "limit_exceeded user_day")

	p.change(engine, path, map[string]any{"limits": []any{limit("user", "day", 3)}, "reason": "slow sale"})
	p.expect(engine, "ann", "won")
	p.expect(engine, "ann", "limit_exceeded user_day")

	p.change(engine, path, map[string]any{"limits": []any{limit("user", "day", 1)}, "reason": "too fast"})
	p.expect(engine, "ann", "limit_exceeded user_day")
	p.expect(engine, "bob", "won")
	p.expect(engine, "bob", "limit_exceeded user_day")
	p.awaitSold(path, 4)
	p.requireSound("s")

	p.change(engine, path, map[string]any{"limits": []any{limit("user", "day", 4)}})
	p.expect(engine, "ann", "won")
	p.awaitSold(path, 5)
	p.requireSound("s")
}

func TestThePerUserLimitGoesUpAndDownLive(t *testing.T) {
	p, path, engine := openShop(t, "per_user_limit", 2)
	p.expect(engine, "ann", "won")
	p.expect(engine, "ann", "won")
	p.expect(engine, "ann", "limit_exceeded per_user_limit")
	p.change(engine, path, map[string]any{"per_user_limit": 1})
	p.expect(engine, "bob", "won")
	p.expect(engine, "bob", "already_grabbed")
	p.change(engine, path, map[string]any{"per_user_limit": 0})
	p.expect(engine, "ann", "won")
	p.change(engine, path, map[string]any{"per_user_limit": 2})
	p.expect(engine, "ann", "limit_exceeded per_user_limit")
	p.expect(engine, "bob", "won")
	p.awaitSold(path, 5)
	p.requireSound("s")
}

func TestTheHistoryOfASaleSaysWhoChangedWhatAndWhy(t *testing.T) {
	p, path, engine := openShop(t, "limits", []any{limit("user", "day", 2)})
	p.change(engine, path, map[string]any{"limits": []any{limit("user", "day", 3)}, "per_user_limit": 3, "reason": "slow sale"})
	p.adjust(http.StatusOK, path, "", 5, "found in the back")
	p.ok(http.StatusOK, "POST", path+"/pause", map[string]any{"reason": "a complaint"}, "Authorization", "Bearer "+keyOfAnn)
	p.ok(http.StatusOK, "POST", path+"/pause", map[string]any{"reason": "again"})
	var lines []string
	cursor := ""
	for {
		page := p.ok(http.StatusOK, "GET", path+"/changes?limit=2&cursor="+cursor, nil)
		for _, c := range page.list(t, "changes") {
			lines = append(lines, fmt.Sprintf("%s: %s -> %s by %s (%s)", c["field"], c["old"], c["new"], c["actor"], c["reason"]))
		}
		if page.body["next_cursor"] == nil {
			break
		}
		cursor = page.body["next_cursor"].(string)
	}
	want := `status: draft -> approved by operator ()
per_user_limit: 1 -> 3 by operator (slow sale)
limits.user_day.max: 2 -> 3 by operator (slow sale)
items.A.stock: 10 -> 15 by operator (found in the back)
status: approved -> paused by ann (a complaint)`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the history is\n%s\nwant\n%s", got, want)
	}
}

func TestTheLogShowsEachCounterAndEachOrder(t *testing.T) {
	p, path, engine := openShop(t, "per_user_limit", 0, "limits", []any{limit("user", "sale", 5), limit("ip", "sale", 5)})
	p.expect(engine, "ann", "won")
	order := p.grab(engine, "s", "ann")
	p.expect(engine, "bob", "won")
	p.awaitSold(path, 3)
	p.ok(http.StatusOK, "POST", "/admin/v1/orders/"+order+"/pay", nil)
	for range 2 {
		p.ok(http.StatusOK, "POST", "/admin/v1/orders/"+order+"/cancel", map[string]any{"reason": "rolled back"})
	}
	log := func(query string) string {
		t.Helper()
		var lines []string
		for _, f := range p.ok(http.StatusOK, "GET", path+"/flows?"+query, nil).list(t, "flows") {
			lines = append(lines, fmt.Sprint(f["kind"], " ", f["before"], " ", f["after"]))
		}
		return strings.Join(lines, ", ")
	}
	for query, want := range map[string]string{
		"counter=user_sale//ann":       "grab 0 1, grab 1 2, cancel 2 1",
		"counter=user_sale//bob":       "grab 0 1",
		"counter=ip_sale//203.0.113.1": "grab 0 1, grab 1 2",
		"counter=ip_sale//":            "grab 0 1, cancel 1 0", // the order's grab came without an address
		"sku=A":                        "grab 10 9, grab 9 8, grab 8 7, cancel 7 8",
	} {
		if got := log(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	// What the rollback reversed is what the grab took, line for line.
	steps := make(map[any]float64)
	lines := p.ok(http.StatusOK, "GET", path+"/flows?order_id="+order, nil).list(t, "flows")
	for _, f := range lines {
		steps[fmt.Sprint(f["sku"], f["counter"])] += f["step"].(float64)
		if f["order_id"] != order {
			t.Errorf("of another order: %v", f)
		}
	}
	if want := map[any]float64{"A<nil>": 0, "<nil>user_sale//ann": 0, "<nil>ip_sale//": 0}; len(lines) != 6 || fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("the order's lines add up to %v of %d", steps, len(lines))
	}
	p.refused(http.StatusBadRequest, "invalid_field", "GET", path+"/flows?counter=user_day//ann", nil).has(t, "field", "counter")
	p.refused(http.StatusBadRequest, "invalid_field", "GET", path+"/flows?sku=A&counter=user_sale//ann", nil).has(t, "field", "counter")
	p.refused(http.StatusBadRequest, "invalid_field", "GET", path+"/flows?order_id=t.abc", nil).has(t, "field", "order_id")
	p.requireSound("s")
}

func TestLimitsHoldWhileTheyAreChangedUnderACrowd(t *testing.T) {
	p, path, engine := openShop(t, "per_user_limit", 0, "items", []any{map[string]any{"sku": "A", "stock": 100_000}},
		"limits", []any{limit("user", "day", 5), limit("sale", "sale", 300)})
	var won atomic.Int64
	var crowd sync.WaitGroup
	for c := range 8 {
		crowd.Go(func() {
			for i := range 120 {
				if p.tries(engine, fmt.Sprintf("u%d", (c*7+i)%40)) == "won" {
					won.Add(1)
				}
			}
		})
	}
	for _, most := range [][2]int64{{2, 50}, {9, 200}, {1, 10}, {30, 400}, {12, 350}} {
		p.ok(http.StatusOK, "PATCH", path, map[string]any{"limits": []any{limit("user", "day", most[0]), limit("sale", "sale", most[1])}})
	}
	crowd.Wait()
	if won.Load() > 400 {
		t.Errorf("%d units were won, never were more allowed than 400", won.Load())
	}
	if s, _ := engine.Sale("s"); s.Status != sale.StatusApproved {
		t.Errorf("the sale is %s", s.Status)
	}
	p.awaitSold(path, int(won.Load()))
	p.requireSound("s")
}
