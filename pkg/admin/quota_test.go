package admin_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

func quotaPath(key string) string { return "/admin/v1/quotas/" + key }

func TestAQuotaIsMadeOnceAndItsLimitChangesWhileItIsUsed(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.open("s")
	engine := p.shop("s")
	day := map[string]any{"limit": 10, "window": "day", "timezone": "Europe/Berlin"}
	p.ok(http.StatusCreated, "PUT", quotaPath("api"), day).has(t, "key", "api", "limit", 10, "window", "day",
		"timezone", "Europe/Berlin", "used", 0, "remaining", 10, "loaded", false)
	p.ok(http.StatusOK, "PUT", quotaPath("api"), day).has(t, "limit", 10)

	deduct := func(key string, units int64) grab.Answer {
		t.Helper()
		var a grab.Answer
		harness.Eventually(t, wait, "the quota is known", func() (bool, string) {
			var err error
			a, err = engine.Deduct(t.Context(), grab.Deduction{Quota: "api", Key: key, Quantity: units})
			return err == nil, fmt.Sprint(err)
		})
		return a
	}
	if a := deduct("1", 7); a.Outcome != sale.Won || a.Remaining != 3 {
		t.Fatalf("the first deduction: %+v", a)
	}
	p.ok(http.StatusOK, "GET", quotaPath("api"), nil).has(t, "used", 7, "remaining", 3, "loaded", true)
	// Below what is used nothing is taken back; without a bound it goes on counting.
	p.ok(http.StatusOK, "PUT", quotaPath("api"), map[string]any{"limit": 5}).has(t, "limit", 5, "used", 7, "remaining", 0)
	p.ok(http.StatusOK, "PUT", quotaPath("api"), map[string]any{"limit": -1}).has(t, "limit", -1, "used", 7, "remaining", -1)
	harness.Eventually(t, wait, "the grab process has the change", func() (bool, string) {
		a := deduct("2", 4)
		return a.Outcome == sale.Won, fmt.Sprint(a)
	})
	p.ok(http.StatusOK, "PUT", quotaPath("api"), map[string]any{"limit": 20}).has(t, "limit", 20, "used", 11, "remaining", 9)

	p.refused(http.StatusConflict, admin.CodeQuotaFixed, "PUT", quotaPath("api"), map[string]any{"limit": 1, "window": "month"}).has(t, "field", "window")
	p.refused(http.StatusConflict, admin.CodeQuotaFixed, "PUT", quotaPath("api"), map[string]any{"limit": 1, "timezone": "UTC"}).has(t, "field", "timezone")
	p.ok(http.StatusOK, "GET", quotaPath("api"), nil).has(t, "limit", 20)
	p.requireSound(sale.QuotaSaleID("api"))
}

func TestAQuotaOutOfRangeIsRefused(t *testing.T) {
	p := openPlane(t, admin.Config{})
	for _, c := range []struct {
		key, field string
		body       map[string]any
	}{
		{"a.b", "key", map[string]any{"limit": 1, "window": "day"}},
		{"k", "limit", map[string]any{"window": "day"}},
		{"k", "limit", map[string]any{"limit": -2, "window": "day"}},
		{"k", "limit", map[string]any{"limit": sale.MaxLimit, "window": "day"}},
		{"k", "window", map[string]any{"limit": 1}},
		{"k", "window", map[string]any{"limit": 1, "window": "sale"}},
		{"k", "timezone", map[string]any{"limit": 1, "window": "day", "timezone": "Mars/Olympus"}},
	} {
		p.refused(http.StatusBadRequest, web.CodeInvalidField, "PUT", quotaPath(c.key), c.body).has(t, "field", c.field)
	}
	p.refused(http.StatusNotFound, admin.CodeQuotaNotFound, "GET", quotaPath("k"), nil)
	p.refused(http.StatusBadRequest, web.CodeInvalidField, "GET", quotaPath("a.b"), nil)
}

func TestQuotasAreNoSalesInAnyListAndTheirSalesCannotBeChanged(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	for i := range 3 {
		p.ok(http.StatusCreated, "PUT", quotaPath(fmt.Sprint("k", i)), map[string]any{"limit": i, "window": "year"})
	}
	first := p.ok(http.StatusOK, "GET", "/admin/v1/quotas?limit=2", nil)
	if keys := fmt.Sprint(first.list(t, "quotas")[0]["key"], first.list(t, "quotas")[1]["key"]); keys != "k0k1" {
		t.Errorf("the first page has %s", keys)
	}
	rest := p.ok(http.StatusOK, "GET", "/admin/v1/quotas?limit=2&cursor="+fmt.Sprint(first.body["next_cursor"]), nil)
	if list := rest.list(t, "quotas"); len(list) != 1 || list[0]["key"] != "k2" || rest.body["next_cursor"] != nil {
		t.Errorf("the second page is %v", rest.body)
	}
	if sales := p.ok(http.StatusOK, "GET", "/admin/v1/sales", nil).list(t, "sales"); len(sales) != 1 || sales[0]["id"] != "s" {
		t.Errorf("the sales are %v", sales)
	}
	p.refused(http.StatusBadRequest, web.CodeInvalidField, "POST", "/admin/v1/sales", draft("quota_mine")).has(t, "field", "id")
	path := salePath(sale.QuotaSaleID("k1"))
	p.refused(http.StatusNotFound, admin.CodeSaleNotFound, "PATCH", path, map[string]any{"per_user_limit": 1})
	p.refused(http.StatusNotFound, admin.CodeSaleNotFound, "POST", path+"/pause", nil)
	p.refused(http.StatusNotFound, admin.CodeSaleNotFound, "POST", path+"/items/unit/adjust", map[string]any{"delta": 1, "reason": "no"})
}
