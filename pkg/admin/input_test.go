package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// wrong is one request that must be refused.
type wrong struct {
	route  string // of admin.Routes
	path   string
	body   any
	header []string
	status int
	code   string
	field  string // that the problem must name
}

const (
	create  = "POST /admin/v1/sales"
	list    = "GET /admin/v1/sales"
	show    = "GET /admin/v1/sales/{sale_id}"
	change  = "PATCH /admin/v1/sales/{sale_id}"
	approve = "POST /admin/v1/sales/{sale_id}/approve"
	pause   = "POST /admin/v1/sales/{sale_id}/pause"
	resume  = "POST /admin/v1/sales/{sale_id}/resume"
	end     = "POST /admin/v1/sales/{sale_id}/end"
	adjust  = "POST /admin/v1/sales/{sale_id}/items/{sku}/adjust"
	flows   = "GET /admin/v1/sales/{sale_id}/flows"
	changes = "GET /admin/v1/sales/{sale_id}/changes"
	orders  = "GET /admin/v1/sales/{sale_id}/orders"
	dead    = "GET /admin/v1/sales/{sale_id}/dead-letters"
	replay  = "POST /admin/v1/sales/{sale_id}/dead-letters/{order_id}/replay"
	drop    = "POST /admin/v1/sales/{sale_id}/dead-letters/{order_id}/cancel"
	recon   = "POST /admin/v1/sales/{sale_id}/reconcile"
	verify  = "GET /admin/v1/sales/{sale_id}/verify"
	getO    = "GET /admin/v1/orders/{order_id}"
	cancelO = "POST /admin/v1/orders/{order_id}/cancel"
	payO    = "POST /admin/v1/orders/{order_id}/pay"
	returnO = "POST /admin/v1/orders/{order_id}/returns"
	deliv   = "GET /admin/v1/sales/{sale_id}/deliveries"
	delivO  = "GET /admin/v1/orders/{order_id}/delivery"
	resendO = "POST /admin/v1/orders/{order_id}/delivery/resend"
	listQ   = "GET /admin/v1/quotas"
	getQ    = "GET /admin/v1/quotas/{key}"
	putQ    = "PUT /admin/v1/quotas/{key}"
)

// field is a request in which one field, header or parameter is wrong.
func field(route, path string, body any, name string) wrong {
	return wrong{route, path, body, nil, http.StatusBadRequest, "invalid_field", name}
}

// missing is a request for something that does not exist.
func missing(route, path string, body any, code string) wrong {
	return wrong{route, path, body, nil, http.StatusNotFound, code, ""}
}

var large = `{"name":"` + strings.Repeat("x", 65<<10) + `"}`

// unread are the ways in which any body can be no JSON value that is expected.
func unread(route, path string) []wrong {
	bad := func(body any, status int, code, field string, header ...string) wrong {
		return wrong{route, path, body, header, status, code, field}
	}
	return []wrong{
		bad(`{`, 400, "bad_request", ""),
		bad(`{} {}`, 400, "bad_request", ""),
		bad(`[]`, 400, "bad_request", ""),
		bad(`null`, 400, "bad_request", ""),
		bad("{\"x\":\"\xff\"}", 400, "bad_request", ""),
		bad(`{"surprise":1}`, 400, "invalid_field", "surprise"),
		bad(large, 413, "body_too_large", ""),
		bad(`{}`, 415, "unsupported_media_type", "", "Content-Type", "text/plain"),
		bad(`{}`, 415, "unsupported_media_type", "", "Content-Encoding", "gzip"),
	}
}

func wrongDrafts() []wrong {
	item := func(more ...any) map[string]any {
		body := map[string]any{"sku": "A", "stock": 1}
		for i := 0; i < len(more); i += 2 {
			body[more[i].(string)] = more[i+1]
		}
		return body
	}
	all := unread(create, "/admin/v1/sales")
	all = append(all, wrong{create, "/admin/v1/sales", nil, nil, 400, "bad_request", ""})
	for _, required := range []string{"name", "starts_at", "ends_at", "items"} {
		all = append(all, field(create, "/admin/v1/sales", without(draft("n"), required), required))
	}
	for _, bad := range []struct {
		member string
		value  any
		field  string
	}{
		{"id", "no id", "id"}, {"id", "-x", "id"}, {"id", strings.Repeat("x", 65), "id"}, {"id", 7, "id"},
		{"name", "", "name"}, {"name", strings.Repeat("x", 201), "name"}, {"name", 7, "name"},
		{"starts_at", "tomorrow", "starts_at"}, {"starts_at", "2026-11-27 09:00:00", "starts_at"}, {"starts_at", 7, "starts_at"},
		{"starts_at", "0001-01-01T00:00:00Z", "starts_at"}, {"starts_at", "9999-01-01T00:00:00Z", "starts_at"},
		{"ends_at", "", "ends_at"}, {"ends_at", "2001-01-01T00:00:00Z", "ends_at"}, {"ends_at", "2199-01-01T00:00:00Z", "ends_at"},
		{"payment_window", "20", "payment_window"}, {"payment_window", "0s", "payment_window"},
		{"payment_window", "-1m", "payment_window"}, {"payment_window", "721h", "payment_window"}, {"payment_window", 20, "payment_window"},
		{"per_user_limit", -1, "per_user_limit"}, {"per_user_limit", 1_000_001, "per_user_limit"}, {"per_user_limit", 1.5, "per_user_limit"},
		{"per_user_limit", "1", "per_user_limit"},
		{"timezone", "", "timezone"}, {"timezone", "Local", "timezone"}, {"timezone", "Mars/Olympus", "timezone"},
		{"limits", "many", "limits"}, {"limits", []any{map[string]any{"scope": "ip", "window": "day"}}, "limits[0].max"},
		{"limits", []any{limit("crowd", "day", 3)}, "limits[0].scope"}, {"limits", []any{limit("ip", "week", 3)}, "limits[0].window"},
		{"limits", []any{limit("ip", "day", -1)}, "limits[0].max"}, {"limits", []any{limit("ip", "day", int64(1e13))}, "limits[0].max"},
		{"limits", []any{limit("ip", "day", 1), limit("ip", "day", 2)}, "limits[1]"},
		{"rate_limit", -1, "rate_limit"}, {"rate_limit", 1_000_001, "rate_limit"}, {"regrab_after_cancel", "yes", "regrab_after_cancel"},
		{"fulfilment", "https://shop.example", "fulfilment"}, {"fulfilment", map[string]any{}, "fulfilment.url"},
		{"fulfilment", hook("url", "ftp://shop.example"), "fulfilment.url"}, {"fulfilment", hook("url", "https://user:word@shop.example"), "fulfilment.url"},
		{"fulfilment", hook("url", "/hook"), "fulfilment.url"}, {"fulfilment", hook("url", "https://shop.example/"+strings.Repeat("x", 2000)), "fulfilment.url"},
		{"fulfilment", hook("trigger", "shipped"), "fulfilment.trigger"}, {"fulfilment", hook("on_failure", "shrug"), "fulfilment.on_failure"},
		{"fulfilment", hook("give_up_after", "999ms"), "fulfilment.give_up_after"}, {"fulfilment", hook("give_up_after", "721h"), "fulfilment.give_up_after"},
		{"fulfilment", hook("give_up_after", "soon"), "fulfilment.give_up_after"}, {"fulfilment", hook("give_up_after", 60), "fulfilment.give_up_after"},
		{"fulfilment", hook("secret", "x"), "fulfilment.secret"},
		{"items", []any{}, "items"}, {"items", "A", "items"},
		{"items", []any{map[string]any{"sku": "A"}}, "items[0].stock"},
		{"items", []any{item("sku", "")}, "items[0].sku"}, {"items", []any{item("sku", "a b")}, "items[0].sku"},
		{"items", []any{item(), item()}, "items[1].sku"},
		{"items", []any{item("stock", -2)}, "items[0].stock"}, {"items", []any{item("stock", 1_000_000_001)}, "items[0].stock"},
		{"items", []any{item("stock", 1e30)}, "items.stock"}, {"items", []any{item("stock", "9")}, "items.stock"},
		{"items", []any{item("price_cents", -1)}, "items[0].price_cents"}, {"items", []any{item("price_cents", int64(1e13))}, "items[0].price_cents"},
		{"items", []any{item("surprise", 1)}, "surprise"},
	} {
		all = append(all, field(create, "/admin/v1/sales", draft("n", bad.member, bad.value), bad.field))
	}
	return append(all, wrong{create, "/admin/v1/sales", draft("s"), nil, 409, admin.CodeSaleExists, ""})
}

func wrongChanges() []wrong {
	all := unread(change, salePath("s"))
	all = append(all, wrong{change, salePath("s"), nil, nil, 400, "bad_request", ""}, missing(change, salePath("none"), `{}`, admin.CodeSaleNotFound))
	for _, bad := range []struct{ body, field string }{
		{`{"name":""}`, "name"}, {`{"starts_at":"now"}`, "starts_at"}, {`{"starts_at":"2190-01-01T00:00:00Z"}`, "ends_at"},
		{`{"ends_at":"2001-01-01T00:00:00Z"}`, "ends_at"}, {`{"payment_window":"1ms"}`, "payment_window"},
		{`{"fulfilment":{}}`, "fulfilment.url"}, {`{"fulfilment":7}`, "fulfilment"},
		{`{"rate_limit":-1}`, "rate_limit"}, {`{"reason":"two\nlines"}`, "reason"}, {`{"limits":[{"scope":"ip","window":"day"}]}`, "limits[0].max"},
		{`{"per_user_limit":-1}`, "per_user_limit"}, {`{"per_user_limit":1e30}`, "per_user_limit"}, {`{"id":"t"}`, "id"}, {`{"status":"ended"}`, "status"},
	} {
		all = append(all, field(change, salePath("s"), bad.body, bad.field))
	}
	return append(all,
		field(change, salePath("d"), `{"items":[]}`, "items"), field(change, salePath("d"), `{"items":[{"sku":"A"}]}`, "items[0].stock"),
		field(change, salePath("d"), `{"timezone":"x"}`, "timezone"))
}

func wrongAdjustments() []wrong {
	path := salePath("s", "items", "A", "adjust")
	fine := map[string]any{"delta": 1, "reason": "r"}
	all := unread(adjust, path)
	all = append(all,
		wrong{adjust, path, nil, nil, 400, "bad_request", ""},
		missing(adjust, salePath("none", "items", "A", "adjust"), fine, admin.CodeSaleNotFound),
		wrong{adjust, salePath("s", "items", "B", "adjust"), fine, nil, 404, admin.CodeItemNotFound, "sku"},
		wrong{adjust, salePath("s", "items", "a%20b", "adjust"), fine, nil, 404, admin.CodeItemNotFound, "sku"},
		wrong{adjust, path, fine, []string{"Idempotency-Key", strings.Repeat("k", 65)}, 400, "invalid_field", "Idempotency-Key"},
		wrong{adjust, path, fine, []string{"Idempotency-Key", "two words"}, 400, "invalid_field", "Idempotency-Key"},
		wrong{adjust, salePath("d", "items", "A", "adjust"), fine, nil, 409, admin.CodeSaleState, ""},
		wrong{adjust, salePath("s", "items", "U", "adjust"), fine, nil, 409, admin.CodeStockUnlimited, ""},
		wrong{adjust, salePath("s", "items", "U", "adjust"), map[string]any{"delta": -1, "reason": "r"}, nil, 409, admin.CodeStockUnlimited, ""})
	for _, bad := range []any{-2, 1_000_000_001, "many", 1.5} {
		all = append(all, field(adjust, path, map[string]any{"stock": bad, "reason": "r"}, "stock"))
	}
	all = append(all,
		field(adjust, path, map[string]any{"stock": 5, "delta": 5, "reason": "r"}, "stock"), field(adjust, path, map[string]any{"stock": 5}, "reason"),
		wrong{adjust, path, map[string]any{"stock": 5, "reason": "r"}, nil, 409, admin.CodeStockLimited, ""},
		wrong{adjust, salePath("d", "items", "A", "adjust"), map[string]any{"stock": -1, "reason": "r"}, nil, 409, admin.CodeSaleState, ""})
	for _, bad := range []struct {
		delta  any
		reason any
		field  string
	}{
		{0, "r", "delta"}, {nil, "r", "delta"}, {1_000_000_001, "r", "delta"}, {-1_000_000_001, "r", "delta"}, {1e30, "r", "delta"},
		{"1", "r", "delta"}, {0.5, "r", "delta"}, {1_000_000_000, "r", "delta"}, // more than an item may have
		{1, "", "reason"}, {1, nil, "reason"}, {1, 7, "reason"}, {1, strings.Repeat("ü", 201), "reason"}, {1, "two\nlines", "reason"},
	} {
		all = append(all, field(adjust, path, map[string]any{"delta": bad.delta, "reason": bad.reason}, bad.field))
	}
	return all
}

func wrongListings() []wrong {
	var all []wrong
	for _, listing := range []struct{ route, path string }{
		{list, "/admin/v1/sales"}, {flows, salePath("s", "flows")}, {changes, salePath("s", "changes")}, {orders, salePath("s", "orders")}, {dead, salePath("s", "dead-letters")}, {deliv, salePath("s", "deliveries")},
	} {
		for _, limit := range []string{"0", "-1", "201", "x", "", "1&limit=2", "99999999999999999999"} {
			all = append(all, field(listing.route, listing.path+"?limit="+limit, nil, "limit"))
		}
		all = append(all,
			field(listing.route, listing.path+"?cursor=%C3%BC", nil, "cursor"),
			field(listing.route, listing.path+"?page=2", nil, "page"))
		if listing.route != list {
			all = append(all, missing(listing.route, strings.Replace(listing.path, "/s/", "/none/", 1), nil, admin.CodeSaleNotFound))
		}
	}
	return append(all,
		field(flows, salePath("s", "flows?cursor=-1"), nil, "cursor"), field(flows, salePath("s", "flows?sku=B"), nil, "sku"),
		field(flows, salePath("s", "flows?sku="), nil, "sku"), field(changes, salePath("s", "changes?cursor=x"), nil, "cursor"),
		field(orders, salePath("s", "orders?status=pending"), nil, "status"), field(orders, salePath("s", "orders?user=a%20b"), nil, "user"),
		field(deliv, salePath("s", "deliveries?status=lost"), nil, "status"), field(deliv, salePath("s", "deliveries?user=ann"), nil, "user"),
		field(deliv, salePath("s", "deliveries?cursor="+sale.OrderID("other", "ann", "k")), nil, "cursor"),
		field(orders, salePath("s", "orders?cursor="+sale.OrderID("other", "ann", "k")), nil, "cursor"))
}

func wrongDecisions() []wrong {
	unknown := sale.OrderID("s", "ann", "k")
	elsewhere := sale.OrderID("none", "ann", "k")
	var all []wrong
	for route, verb := range map[string]string{approve: "approve", pause: "pause", resume: "resume", end: "end"} {
		all = append(all, unread(route, salePath("d", verb))...)
		all = append(all, missing(route, salePath("none", verb), nil, admin.CodeSaleNotFound), missing(route, salePath("-", verb), nil, admin.CodeSaleNotFound))
	}
	all = append(all, missing(show, salePath("none"), nil, admin.CodeSaleNotFound), missing(show, salePath("%C3%BC"), nil, admin.CodeSaleNotFound))
	for route, path := range map[string]string{
		replay: salePath("s", "dead-letters", unknown, "replay"), drop: salePath("s", "dead-letters", unknown, "cancel"),
	} {
		all = append(all, unread(route, path)...)
		all = append(all, missing(route, path, nil, admin.CodeDeadLetterNotFound),
			missing(route, strings.Replace(path, unknown, "%C3%BC", 1), nil, admin.CodeDeadLetterNotFound),
			missing(route, strings.Replace(path, "/s/", "/-/", 1), nil, admin.CodeSaleNotFound))
	}
	all = append(all, field(drop, salePath("s", "dead-letters", unknown, "cancel"), `{"reason":"`+strings.Repeat("x", 201)+`"}`, "reason"))
	all = append(all, unread(cancelO, "/admin/v1/orders/"+unknown+"/cancel")...)
	for _, id := range []string{unknown, elsewhere, "x", "s.x", "%C3%BC"} {
		all = append(all, missing(getO, "/admin/v1/orders/"+id, nil, admin.CodeOrderNotFound),
			missing(cancelO, "/admin/v1/orders/"+id+"/cancel", nil, admin.CodeOrderNotFound),
			missing(payO, "/admin/v1/orders/"+id+"/pay", nil, admin.CodeOrderNotFound),
			missing(returnO, "/admin/v1/orders/"+id+"/returns", `{"return_id":"r","items":[{"sku":"A","quantity":1}]}`, admin.CodeOrderNotFound))
	}
	for _, id := range []string{unknown, elsewhere} {
		all = append(all, missing(delivO, "/admin/v1/orders/"+id+"/delivery", nil, admin.CodeDeliveryNotFound),
			missing(resendO, "/admin/v1/orders/"+id+"/delivery/resend", nil, admin.CodeDeliveryNotFound))
	}
	all = append(all, missing(delivO, "/admin/v1/orders/x/delivery", nil, admin.CodeOrderNotFound),
		missing(resendO, "/admin/v1/orders/x/delivery/resend", nil, admin.CodeOrderNotFound))
	all = append(all, unread(resendO, "/admin/v1/orders/"+unknown+"/delivery/resend")...)
	all = append(all, unread(payO, "/admin/v1/orders/"+unknown+"/pay")...)
	all = append(all, unread(returnO, "/admin/v1/orders/"+unknown+"/returns")...)
	for body, name := range map[string]string{
		`{"items":[{"sku":"A","quantity":1}]}`:                                               "return_id",
		`{"return_id":"a b","items":[{"sku":"A","quantity":1}]}`:                             "return_id",
		`{"return_id":"` + strings.Repeat("x", 65) + `","items":[{"sku":"A","quantity":1}]}`: "return_id",
		`{"return_id":"r"}`: "items",
		`{"return_id":"r","items":[{"sku":"A","quantity":0}]}`:                                             "items[0].quantity",
		`{"return_id":"r","items":[{"sku":"A","quantity":1},{"sku":"A","quantity":1}]}`:                    "items[1].sku",
		`{"return_id":"r","items":[{"sku":"A","quantity":1}],"reason":"` + strings.Repeat("x", 201) + `"}`: "reason",
	} {
		all = append(all, field(returnO, "/admin/v1/orders/"+unknown+"/returns", body, name))
	}
	all = append(all, unread(recon, salePath("s", "reconcile"))...)
	return append(all,
		field(recon, salePath("s", "reconcile?force=perhaps"), nil, "force"), field(recon, salePath("s", "reconcile?forced=1"), nil, "forced"),
		missing(recon, salePath("none", "reconcile"), nil, admin.CodeSaleNotFound),
		wrong{recon, salePath("d", "reconcile"), nil, nil, 409, admin.CodeSaleState, ""},
		missing(verify, salePath("none", "verify"), nil, admin.CodeSaleNotFound), field(verify, salePath("s", "verify?deep=1"), nil, "deep"))
}

func wrongQuotas() []wrong {
	all := unread(putQ, "/admin/v1/quotas/mail")
	for body, name := range map[string]string{
		`{"window":"day"}`:                                    "limit",
		`{"limit":-2,"window":"day"}`:                         "limit",
		`{"limit":1000000000001,"window":"day"}`:              "limit",
		`{"limit":1}`:                                         "window",
		`{"limit":1,"window":"week"}`:                         "window",
		`{"limit":1,"window":"sale"}`:                         "window",
		`{"limit":1,"window":"day","timezone":"Mars/Phobos"}`: "timezone",
		`{"limit":1,"window":"day","reason":"` + strings.Repeat("x", 201) + `"}`: "reason",
	} {
		all = append(all, field(putQ, "/admin/v1/quotas/mail", body, name))
	}
	for _, key := range []string{"a.b", "%C3%BC", strings.Repeat("k", 58)} {
		all = append(all, field(putQ, "/admin/v1/quotas/"+key, `{"limit":1,"window":"day"}`, "key"))
	}
	return append(all, missing(getQ, "/admin/v1/quotas/none", nil, admin.CodeQuotaNotFound),
		field(listQ, "/admin/v1/quotas?limit=0", nil, "limit"), field(listQ, "/admin/v1/quotas?cursor=%C3%BC", nil, "cursor"),
		field(listQ, "/admin/v1/quotas?page=2", nil, "page"))
}

// pathOf fills a pattern in.
func pathOf(route string) (method, path string) {
	method, path, _ = strings.Cut(route, " ")
	fill := strings.NewReplacer("{sale_id}", "s", "{sku}", "A", "{order_id}", sale.OrderID("s", "ann", "k"), "{key}", "mail")
	return method, fill.Replace(path)
}

func TestWrongInputIsRefusedByNameAndChangesNothing(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.reconciler()
	p.worker()
	p.open("s", "items", []any{map[string]any{"sku": "A", "stock": 10}, map[string]any{"sku": "U", "stock": -1}})
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft("d"))
	before := p.checksums()
	seen := make(map[string]bool)
	for _, group := range [][]wrong{wrongDrafts(), wrongChanges(), wrongAdjustments(), wrongListings(), wrongDecisions(), wrongFlowControls(), wrongQuotas()} {
		for _, w := range group {
			seen[w.route] = true
			method, _, _ := strings.Cut(w.route, " ")
			r := p.refused(w.status, w.code, method, w.path, w.body, w.header...)
			if named, _ := r.body["field"].(string); named != w.field {
				t.Errorf("%s %s %v: names %q, want %q: %s", method, w.path, w.body, named, w.field, r.text)
			}
			if r.body["detail"] == "" || r.body["status"] != float64(w.status) {
				t.Errorf("%s %s: %s", method, w.path, r.text)
			}
		}
	}
	for _, route := range admin.Routes() {
		method, path := pathOf(route)
		for _, header := range []string{"", "Bearer", "Bearer wrong-key", "Basic " + key, "Bearer " + key + "x", key} {
			p.refused(http.StatusUnauthorized, "unauthorized", method, path, nil, "Authorization", header)
		}
		p.refused(http.StatusMethodNotAllowed, "method_not_allowed", "DELETE", path, nil)
		if !seen[route] {
			t.Errorf("%s has no case of its own", route)
		}
	}
	p.refused(http.StatusNotFound, "not_found", "GET", "/admin/v1/nothing", nil)
	if after := p.checksums(); after != before {
		t.Errorf("refused requests changed the ledger:\n%s\nfrom\n%s", after, before)
	}
	p.requireSound("s")
}
