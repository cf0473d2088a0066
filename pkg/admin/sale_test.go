package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestADraftGetsItsDefaults(t *testing.T) {
	p := openPlane(t, admin.Config{})
	body := without(draft("x"), "id")
	body["items"] = []any{map[string]any{"sku": "A", "stock": -1}}
	r := p.ok(http.StatusCreated, "POST", "/admin/v1/sales", body)
	r.has(t, "status", "draft", "phase", "draft", "payment_window", "20m0s", "per_user_limit", 1, "timezone", "UTC",
		"revision", 1, "state", "not_loaded", "reason", "draft", "generation", 0)
	r.item(t).has(t, "sku", "A", "stock", -1, "price_cents", 0, "remaining", nil, "granted", 0, "returned", 0, "sold", 0)
	id, _ := r.body["id"].(string)
	if !regexp.MustCompile(`^[a-z2-7]{10}$`).MatchString(id) {
		t.Errorf("generated id %q", id)
	}
	if again := p.ok(http.StatusOK, "GET", salePath(id), nil); again.text != r.text {
		t.Errorf("shown as %s, created as %s", again.text, r.text)
	}
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("all", "payment_window", "90s", "per_user_limit", 0, "timezone", "Europe/Berlin",
		"starts_at", "2030-06-01T12:00:00.1234+02:00", "ends_at", "2030-06-02T00:00:00Z", "limits", []any{})).
		has(t, "id", "all", "payment_window", "1m30s", "per_user_limit", 0, "timezone", "Europe/Berlin", "starts_at", "2030-06-01T10:00:00.123Z")
	p.refused(http.StatusConflict, admin.CodeSaleExists, "POST", "/admin/v1/sales", draft("all"))
}

func TestAnApprovedSaleIsLoadedForItsFirstGrab(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	path := p.open("s")
	r := p.ok(http.StatusOK, "GET", path, nil)
	r.has(t, "status", "approved", "phase", "open", "state", "loaded", "revision", 2, "generation", 1)
	r.item(t).has(t, "stock", 10, "remaining", 10)
	if r.body["era"] == "" {
		t.Errorf("no era in %s", r.text)
	}
	p.grab(p.shop("s"), "s", "ann")
	p.ok(http.StatusOK, "GET", path, nil).item(t).has(t, "remaining", 9)
}

func TestASaleMovesThroughItsLifeAndEveryMoveMayBeRepeated(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	for _, step := range []struct {
		verb, status string
		revision     int
		wrong        []string // moves that are refused from here on
	}{
		{"approve", "approved", 2, nil},
		{"pause", "paused", 3, []string{"approve"}},
		{"resume", "approved", 4, nil},
		{"pause", "paused", 5, nil},
		{"end", "ended", 6, []string{"approve", "pause", "resume"}},
	} {
		for range 2 {
			p.ok(http.StatusOK, "POST", salePath("s", step.verb), nil).has(t, "status", step.status, "revision", step.revision)
		}
		shown, err := p.stream.GetSale(t.Context(), "s")
		must(t, err)
		if string(shown.Status) != step.status || shown.Revision != int64(step.revision) {
			t.Errorf("after %s the catalogue has %s, revision %d", step.verb, shown.Status, shown.Revision)
		}
		for _, verb := range step.wrong {
			p.refused(http.StatusConflict, admin.CodeSaleState, "POST", salePath("s", verb), nil).has(t, "sale_status", step.status)
		}
	}
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("d"))
	for _, verb := range []string{"pause", "resume", "end"} {
		p.refused(http.StatusConflict, admin.CodeSaleState, "POST", salePath("d", verb), nil).has(t, "sale_status", "draft")
	}
	if _, err := p.stream.GetSale(t.Context(), "d"); !errors.Is(err, stream.ErrNoSale) {
		t.Errorf("the draft in the catalogue: %v", err)
	}
}

func TestAnApprovalStandsWithoutAReconciler(t *testing.T) {
	p := openPlane(t, admin.Config{LoadTimeout: 50 * time.Millisecond})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil).has(t, "status", "approved", "state", "not_loaded", "reason", "no_state")
	p.reconciler()
	harness.Eventually(t, wait, "approving again loads the sale", func() (bool, string) {
		r := p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil)
		return r.body["state"] == "loaded", r.text
	})
}

func TestADraftChangesWholeAndAnApprovedSaleWhatMayChange(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	all := map[string]any{
		"name": "Other", "starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-02T00:00:00Z", "payment_window": "1h", "per_user_limit": 5,
		"timezone": "Europe/Berlin", "items": []any{map[string]any{"sku": "B", "stock": 3}},
	}
	r := p.ok(http.StatusOK, "PATCH", salePath("s"), all)
	r.has(t, "name", "Other", "starts_at", "2030-01-01T00:00:00Z", "ends_at", "2030-01-02T00:00:00Z", "payment_window", "1h0m0s",
		"per_user_limit", 5, "timezone", "Europe/Berlin", "revision", 2)
	r.item(t).has(t, "sku", "B", "stock", 3)
	p.ok(http.StatusOK, "PATCH", salePath("s"), all).has(t, "revision", 2)

	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil)
	r = p.ok(http.StatusOK, "PATCH", salePath("s"), map[string]any{
		"name": "Third", "starts_at": "2029-01-01T00:00:00Z", "ends_at": "2031-01-02T00:00:00Z", "payment_window": "2h", "per_user_limit": 6,
	})
	r.has(t, "name", "Third", "starts_at", "2029-01-01T00:00:00Z", "ends_at", "2031-01-02T00:00:00Z", "payment_window", "2h0m0s",
		"per_user_limit", 6, "revision", 4)
	shown, err := p.stream.GetSale(t.Context(), "s")
	must(t, err)
	if shown.Name != "Third" || shown.PerUserLimit != 6 || shown.Revision != 4 {
		t.Errorf("the catalogue has %+v", shown)
	}
	for field, value := range map[string]any{"items": all["items"], "timezone": "UTC"} {
		p.refused(http.StatusConflict, admin.CodeSaleNotDraft, "PATCH", salePath("s"), map[string]any{field: value}).
			has(t, "field", field, "sale_status", "approved")
	}
	p.ok(http.StatusOK, "POST", salePath("s", "end"), nil)
	p.refused(http.StatusConflict, admin.CodeSaleState, "PATCH", salePath("s"), map[string]any{"name": "x"}).has(t, "sale_status", "ended")
}

func TestWhatACrashLeftUnpublishedIsPublished(t *testing.T) {
	p := openPlane(t, admin.Config{PublishInterval: 20 * time.Millisecond})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("d"))
	// A process that dies here has moved the sale in the ledger only.
	for _, step := range []struct{ from, to sale.Status }{
		{sale.StatusDraft, sale.StatusApproved}, {sale.StatusApproved, sale.StatusEnded},
	} {
		_, err := p.ledger.UpdateStatus(t.Context(), "s", []sale.Status{step.from}, step.to)
		must(t, err)
		harness.Eventually(t, wait, "the catalogue has the sale "+string(step.to), func() (bool, string) {
			shown, err := p.stream.GetSale(t.Context(), "s")
			return err == nil && shown.Status == step.to, fmt.Sprint(err)
		})
	}
	must(t, p.stream.DeleteSale(t.Context(), "s"))
	harness.Eventually(t, wait, "what the catalogue lost is back", func() (bool, string) {
		_, err := p.stream.GetSale(t.Context(), "s")
		return err == nil, fmt.Sprint(err)
	})
	if _, err := p.stream.GetSale(t.Context(), "d"); !errors.Is(err, stream.ErrNoSale) {
		t.Errorf("the draft in the catalogue: %v", err)
	}
}

func TestAChangeThatCanNotBePublishedSaysSoAndIsPublishedLater(t *testing.T) {
	p := openPlane(t, admin.Config{PublishInterval: 20 * time.Millisecond, LoadTimeout: 50 * time.Millisecond})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("s"))
	p.ok(http.StatusOK, "POST", salePath("s", "approve"), nil)
	p.nats.Kill()
	r := p.refused(http.StatusServiceUnavailable, "unavailable", "POST", salePath("s", "pause"), nil)
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	p.ok(http.StatusOK, "GET", salePath("s"), nil).has(t, "status", "paused")
	p.nats.Start()
	harness.Eventually(t, wait, "the catalogue has the pause", func() (bool, string) {
		shown, err := p.stream.GetSale(t.Context(), "s")
		return err == nil && shown.Status == sale.StatusPaused, fmt.Sprint(err)
	})
}

func TestSalesAreListedInPages(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.open("b")
	for _, id := range []string{"d", "a", "c"} {
		p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft(id))
	}
	first := p.ok(http.StatusOK, "GET", "/admin/v1/sales?limit=3&cursor=", nil)
	if got := ids(first.list(t, "sales")); got != "abc" {
		t.Errorf("first page %s", got)
	}
	b := reply{body: first.list(t, "sales")[1], text: first.text}
	b.has(t, "state", "loaded")
	b.item(t).has(t, "remaining", 10)
	first.has(t, "next_cursor", "c")
	last := p.ok(http.StatusOK, "GET", "/admin/v1/sales?limit=3&cursor=c", nil)
	if got := ids(last.list(t, "sales")); got != "d" {
		t.Errorf("last page %s", got)
	}
	last.has(t, "next_cursor", nil)
	beyond := p.ok(http.StatusOK, "GET", "/admin/v1/sales?cursor=z", nil)
	if len(beyond.list(t, "sales")) != 0 {
		t.Errorf("beyond the end: %s", beyond.text)
	}
}

func TestASaleIsShownWhileRedisIsAway(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	path := p.open("s")
	p.redis.Kill()
	r := p.ok(http.StatusOK, "GET", path, nil)
	r.has(t, "state", "not_loaded", "reason", "unreachable")
	r.item(t).has(t, "stock", 10, "remaining", nil)
	p.redis.Start()
	harness.Eventually(t, wait, "the sale is loaded again", func() (bool, string) {
		r := p.ok(http.StatusOK, "POST", path+"/approve", nil)
		return r.body["state"] == "loaded", r.text
	})
}

func ids(sales []map[string]any) string {
	all := ""
	for _, s := range sales {
		all += s["id"].(string)
	}
	return all
}
