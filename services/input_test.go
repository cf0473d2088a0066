package services_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Wrong input on every endpoint: 4xx, a problem that names the field, nothing changed.
func TestWrongInputIsRefusedEverywhereAndChangesNothing(t *testing.T) {
	s := startStack(t)
	id := s.openSale(t, 10)
	grab, order, admin := s.grabs[0].url, s.orders[0].url, s.admin.url
	user := http.Header{"X-User-Id": {"ann"}}
	key := http.Header{"Authorization": {"Bearer " + adminKey}}
	with := func(h http.Header, name, value string) http.Header {
		h = maps.Clone(h)
		h[name] = []string{value}
		return h
	}
	long := strings.Repeat("k", 65)
	large := `{"name":"` + strings.Repeat("x", 64<<10) + `"}`
	draft := func(field, value string) string {
		d := map[string]json.RawMessage{
			"name": json.RawMessage(`"n"`), "starts_at": json.RawMessage(`"2030-01-01T00:00:00Z"`),
			"ends_at": json.RawMessage(`"2030-01-02T00:00:00Z"`), "items": json.RawMessage(`[{"sku":"A","stock":1}]`),
		}
		d[field] = json.RawMessage(value)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	sales, mine, none := admin+"/admin/v1/sales", admin+"/admin/v1/sales/"+id, admin+"/admin/v1/sales/none"
	grabs, adjust := grab+"/v1/sales/"+id+"/grabs", mine+"/items/A/adjust"
	noOrder := id + ".00000000000000000000000000"
	before := s.everything(t, id)
	for _, tc := range []struct {
		method, url, body string
		header            http.Header
		status            int
		field             string
	}{
		{"POST", grabs, "", http.Header{}, 401, ""},
		{"POST", grabs, "{", user, 400, ""},
		{"POST", grabs, `{"what":1}`, user, 400, "what"},
		{"POST", grabs, `{"items":[{"sku":"A","quantity":-1}]}`, user, 400, "items[0].quantity"},
		{"POST", grabs, `{"items":[{"sku":"A","quantity":1000001}]}`, user, 400, "items[0].quantity"},
		{"POST", grabs, `{"items":[{"sku":"Z","quantity":1}]}`, user, 400, "items[0].sku"},
		{"POST", grabs, large, user, 413, ""},
		{"POST", grabs, "", with(user, "Idempotency-Key", long), 400, "Idempotency-Key"},
		{"POST", grab + "/v1/sales/none/grabs", "", user, 404, ""},
		{"GET", grab + "/v1/sales/none", "", nil, 404, ""},
		{"DELETE", grabs, "", user, 405, ""},

		{"GET", order + "/v1/orders/" + noOrder, "", http.Header{}, 401, ""},
		{"GET", order + "/v1/orders/" + noOrder, "", user, 404, ""},
		{"GET", order + "/v1/orders/nonsense", "", user, 404, ""},
		{"GET", order + "/v1/orders/" + noOrder + "?wait=soon", "", user, 400, "wait"},
		{"GET", order + "/v1/orders/" + noOrder + "?wait=31s", "", user, 400, "wait"},
		{"POST", order + "/v1/orders/" + noOrder + "/cancel", "", http.Header{}, 401, ""},
		{"POST", order + "/v1/orders/" + noOrder + "/cancel", "", user, 404, ""},
		{"GET", order + "/v1/orders/" + noOrder + "/events", "", http.Header{}, 401, ""},
		{"GET", order + "/v1/orders/" + noOrder + "/events", "", user, 404, ""},

		{"POST", sales, draft("name", `"n"`), http.Header{}, 401, ""},
		{"POST", sales, draft("name", `"n"`), http.Header{"Authorization": {"Bearer wrong"}}, 401, ""},
		{"POST", sales, "{", key, 400, ""},
		{"POST", sales, large, key, 413, ""},
		{"POST", sales, draft("what", "1"), key, 400, "what"},
		{"POST", sales, draft("id", `"a b"`), key, 400, "id"},
		{"POST", sales, draft("id", `"`+id+`"`), key, 409, ""},
		{"POST", sales, draft("starts_at", `"tomorrow"`), key, 400, "starts_at"},
		{"POST", sales, draft("ends_at", `"2029-01-01T00:00:00Z"`), key, 400, "ends_at"},
		{"POST", sales, draft("items", `[{"sku":"A","stock":-2}]`), key, 400, "items[0].stock"},
		{"POST", sales, draft("items", `[{"sku":"A","stock":1000000001}]`), key, 400, "items[0].stock"},
		{"POST", sales, draft("per_user_limit", "-1"), key, 400, "per_user_limit"},
		{"POST", sales, draft("payment_window", `"forever"`), key, 400, "payment_window"},
		{"POST", sales, draft("timezone", `"Mars"`), key, 400, "timezone"},
		{"GET", sales + "?limit=0", "", key, 400, "limit"},
		{"GET", none, "", key, 404, ""},
		{"PATCH", mine, `{"per_user_limit":1.5}`, key, 400, "per_user_limit"},
		{"PATCH", mine, `{"items":[{"sku":"B","stock":1}]}`, key, 409, "items"},
		{"PATCH", none, `{"name":"x"}`, key, 404, ""},
		{"POST", none + "/approve", "", key, 404, ""},
		{"POST", none + "/pause", "", key, 404, ""},
		{"POST", mine + "/resume", `{"a":1}`, key, 400, "a"},
		{"POST", none + "/end", "", key, 404, ""},
		{"POST", adjust, `{"delta":0,"reason":"r"}`, key, 400, "delta"},
		{"POST", adjust, `{"delta":2000000000,"reason":"r"}`, key, 400, "delta"},
		{"POST", adjust, `{"delta":1}`, key, 400, "reason"},
		{"POST", adjust, `{"delta":1,"reason":"r"}`, with(key, "Idempotency-Key", long), 400, "Idempotency-Key"},
		{"POST", mine + "/items/Z/adjust", `{"delta":1,"reason":"r"}`, key, 404, "sku"},
		{"GET", mine + "/flows?cursor=x", "", key, 400, "cursor"},
		{"GET", mine + "/orders?status=eaten", "", key, 400, "status"},
		{"GET", mine + "/dead-letters?limit=1001", "", key, 400, "limit"},
		{"POST", mine + "/dead-letters/" + noOrder + "/replay", "", key, 404, ""},
		{"POST", mine + "/dead-letters/" + noOrder + "/cancel", "", key, 404, ""},
		{"GET", admin + "/admin/v1/orders/" + noOrder, "", key, 404, ""},
		{"POST", admin + "/admin/v1/orders/" + noOrder + "/cancel", "", key, 404, ""},
		{"POST", admin + "/admin/v1/orders/" + noOrder + "/pay", "", key, 404, ""},
		{"POST", admin + "/admin/v1/orders/" + noOrder + "/pay", `{"force":true}`, key, 400, "force"},
		{"POST", admin + "/admin/v1/orders/" + noOrder + "/returns", `{"return_id":"r","items":[{"sku":"A","quantity":1}]}`, key, 404, ""},
		{"POST", admin + "/admin/v1/orders/" + noOrder + "/returns", `{"return_id":"r"}`, key, 400, "items"},
		{"POST", none + "/reconcile", "", key, 404, ""},
		{"GET", none + "/verify", "", key, 404, ""},
		{"GET", admin + "/nowhere", "", key, 404, ""},
	} {
		status, contentType, problem := refusedWith(t, tc.method, tc.url, tc.body, tc.header)
		if field, _ := problem["field"].(string); status != tc.status || contentType != "application/problem+json" || field != tc.field {
			t.Errorf("%s %s %.60s: %d %s %v; want %d naming %q", tc.method, tc.url, tc.body, status, contentType, problem, tc.status, tc.field)
		}
	}
	if after := s.everything(t, id); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
}

func refusedWith(t *testing.T, method, url, body string, header http.Header) (status int, contentType string, problem map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = maps.Clone(header)
	if r.Header == nil {
		r.Header = http.Header{}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &problem); err != nil {
		t.Errorf("%s %s: answer %q is no JSON", method, url, text)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), problem
}

// everything is what wrong input could have changed: the sales, the sale's books
// and all keys in Redis but the leases.
func (s *stack) everything(t *testing.T, saleID string) string {
	t.Helper()
	var all []string
	for _, path := range []string{"", "/" + saleID, "/" + saleID + "/flows", "/" + saleID + "/orders", "/" + saleID + "/dead-letters"} {
		var body json.RawMessage
		if status := s.call(t, "GET", "/admin/v1/sales"+path, nil, &body); status != http.StatusOK {
			t.Fatalf("GET %s: %d", path, status)
		}
		all = append(all, string(body))
	}
	keys := s.redis.Client().Keys(t.Context(), "doorbuster:{*").Val()
	slices.Sort(keys)
	for _, key := range keys {
		all = append(all, fmt.Sprintf("%s %x", key, sha256.Sum256([]byte(s.redis.Client().Dump(t.Context(), key).Val()))))
	}
	return strings.Join(all, "\n")
}
