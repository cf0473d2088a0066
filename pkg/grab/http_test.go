package grab_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/prometheus/client_golang/prometheus"
)

// counter is the grab service of a shop behind HTTP.
type counter struct {
	*shop
	service  *grab.Service
	registry *prometheus.Registry
	url      string
}

func openCounter(t *testing.T, tuning config.GrabTuning) *counter {
	t.Helper()
	return openShop(t, 10, 1).open(t, tuning, config.GrabFront{})
}

// open shows the sale to the grab services and starts one.
func (s *shop) open(t *testing.T, tuning config.GrabTuning, front config.GrabFront) *counter {
	t.Helper()
	if err := s.stream.PutSale(t.Context(), s.sale); err != nil {
		t.Fatal(err)
	}
	return s.serve(t, tuning, front)
}

// serve starts a grab service with a connection to NATS of its own.
func (s *shop) serve(t *testing.T, tuning config.GrabTuning, front config.GrabFront) *counter {
	t.Helper()
	return s.serveQuotas(t, tuning, front, config.Quotas{})
}

// serveQuotas is serve with settings for quotas.
func (s *shop) serveQuotas(t *testing.T, tuning config.GrabTuning, front config.GrabFront, quotas config.Quotas) *counter {
	t.Helper()
	c := s.starting(t, tuning, front, quotas)
	c.run(t)
	return c
}

// starting serves a grab service that has read nothing yet, as one is that has just been started.
func (s *shop) starting(t *testing.T, tuning config.GrabTuning, front config.GrabFront, quotas config.Quotas) *counter {
	t.Helper()
	str, err := stream.Open(stream.Config{URL: s.nats.URL(), PublishTimeout: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(str.Close)
	identity, err := web.NewIdentity(t.Context(), web.IdentityOptions{TrustUserHeader: true})
	if err != nil {
		t.Fatal(err)
	}
	registry := telemetry.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	service, err := grab.NewService(grab.ServiceConfig{
		Tuning: tuning, Front: front, Quotas: quotas, PublishDeadline: time.Second, Stock: s.store, Stream: str, Identity: identity,
		Metrics: telemetry.NewGrabMetrics(registry, sale.OutcomeNames()), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	router := web.NewRouter(telemetry.NewHTTPMetrics(registry), log)
	service.Mount(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	return &counter{shop: s, service: service, registry: registry, url: server.URL}
}

// run runs the service until the test ends, and waits until it is ready.
func (c *counter) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the service ended with %v", err)
		}
	})
	harness.Eventually(t, 5*time.Second, "the service is ready", func() (bool, string) {
		_, known := c.service.Engine().Sale(c.sale.ID)
		return known && c.service.Ready(ctx) == nil, ""
	})
}

// metric returns the value of a counter or gauge of the service.
func (c *counter) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if len(labels) > 0 && m.GetLabel()[0].GetValue() != labels[0] {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	t.Fatalf("there is no metric %s %v", name, labels)
	return 0
}

// call sends a request and returns its status, header and decoded body.
func (c *counter) call(t *testing.T, method, path, body string, header http.Header) (int, http.Header, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	decoded := map[string]any{}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatalf("%s %s: answer %q is not JSON: %v", method, path, text, err)
	}
	return response.StatusCode, response.Header, decoded
}

func as(user string, more ...string) http.Header {
	h := http.Header{"X-User-Id": {user}}
	for i := 0; i < len(more); i += 2 {
		h.Add(more[i], more[i+1])
	}
	return h
}

func TestAGrabOverHTTP(t *testing.T) {
	c := openCounter(t, config.GrabTuning{})
	path := "/v1/sales/" + c.sale.ID + "/grabs"
	status, _, won := c.call(t, "POST", path, "", as("u", "Idempotency-Key", "k"))
	if status != http.StatusCreated || won["outcome"] != "won" || won["sale_id"] != c.sale.ID || won["replayed"] != false {
		t.Fatalf("%d %v", status, won)
	}
	if _, err := time.Parse(time.RFC3339, won["expires_at"].(string)); err != nil {
		t.Errorf("expires_at %v: %v", won["expires_at"], err)
	}
	items, _ := json.Marshal(won["items"])
	if string(items) != `[{"price_cents":100,"quantity":1,"sku":"A"}]` {
		t.Errorf("items %s", items)
	}
	status, _, again := c.call(t, "POST", path, `{"items":[{"sku":"A","quantity":1}]}`, as("u", "Idempotency-Key", "k"))
	if status != http.StatusCreated || again["replayed"] != true || again["order_id"] != won["order_id"] {
		t.Errorf("the same key: %d %v", status, again)
	}
	status, _, other := c.call(t, "POST", path, "", as("u", "Idempotency-Key", "other"))
	if status != http.StatusConflict || other["outcome"] != "already_grabbed" || other["code"] != "already_grabbed" || other["order_id"] != won["order_id"] {
		t.Errorf("another key: %d %v", status, other)
	}
}

func TestWrongGrabsAreRefusedAndChangeNothing(t *testing.T) {
	c := openCounter(t, config.GrabTuning{})
	right := "/v1/sales/" + c.sale.ID + "/grabs"
	for _, tc := range []struct {
		name, method, path, body string
		header                   http.Header
		status                   int
		code, field              string
	}{
		{"no identity", "POST", right, "", http.Header{}, 401, "unauthorized", ""},
		{"unknown sale", "POST", "/v1/sales/none/grabs", "", as("u"), 404, "not_found", ""},
		{"bad JSON", "POST", right, "{", as("u"), 400, "bad_request", ""},
		{"unknown field", "POST", right, `{"itmes":[]}`, as("u"), 400, "invalid_field", "itmes"},
		{"wrong type", "POST", right, `{"items":[{"sku":1,"quantity":1}]}`, as("u"), 400, "invalid_field", "items.sku"},
		{"empty items", "POST", right, `{"items":[]}`, as("u"), 400, "invalid_field", "items"},
		{"unknown SKU", "POST", right, `{"items":[{"sku":"Z","quantity":1}]}`, as("u"), 400, "invalid_field", "items[0].sku"},
		{"SKU twice", "POST", right, `{"items":[{"sku":"A","quantity":1},{"sku":"A","quantity":1}]}`, as("u"), 400, "invalid_field", "items[1].sku"},
		{"no quantity", "POST", right, `{"items":[{"sku":"A"}]}`, as("u"), 400, "invalid_field", "items[0].quantity"},
		{"negative quantity", "POST", right, `{"items":[{"sku":"A","quantity":-1}]}`, as("u"), 400, "invalid_field", "items[0].quantity"},
		{"huge quantity", "POST", right, `{"items":[{"sku":"A","quantity":1000001}]}`, as("u"), 400, "invalid_field", "items[0].quantity"},
		{"quantity beyond int64", "POST", right, `{"items":[{"sku":"A","quantity":1e30}]}`, as("u"), 400, "invalid_field", "items.quantity"},
		{"long key", "POST", right, "", as("u", "Idempotency-Key", strings.Repeat("k", 65)), 400, "invalid_field", "Idempotency-Key"},
		{"key with a space", "POST", right, "", as("u", "Idempotency-Key", "a b"), 400, "invalid_field", "Idempotency-Key"},
		{"two keys", "POST", right, "", as("u", "Idempotency-Key", "a", "Idempotency-Key", "b"), 400, "invalid_field", "Idempotency-Key"},
		{"large body", "POST", right, `{"items":"` + strings.Repeat("x", 64<<10) + `"}`, as("u"), 413, "body_too_large", ""},
		{"wrong method", "PUT", right, "", as("u"), 405, "method_not_allowed", ""},
		{"long user", "POST", right, "", as(strings.Repeat("u", 129)), 400, "", "X-User-ID"},
		{"sale view of an unknown sale", "GET", "/v1/sales/none", "", http.Header{}, 404, "not_found", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := c.redis.Client().Get(t.Context(), "doorbuster:{"+c.sale.ID+"}:stock:A").Val()
			status, header, got := c.call(t, tc.method, tc.path, tc.body, tc.header)
			if status != tc.status {
				t.Errorf("status %d, want %d: %v", status, tc.status, got)
			}
			if header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("content type %q", header.Get("Content-Type"))
			}
			if code, _ := got["code"].(string); tc.code != "" && code != tc.code {
				t.Errorf("code %q, want %q: %v", code, tc.code, got)
			}
			if field, _ := got["field"].(string); field != tc.field {
				t.Errorf("field %q, want %q: %v", field, tc.field, got)
			}
			if after := c.redis.Client().Get(t.Context(), "doorbuster:{"+c.sale.ID+"}:stock:A").Val(); after != before {
				t.Errorf("the stock went from %s to %s", before, after)
			}
		})
	}
	if granted := c.inRedis(t); len(granted) != 0 {
		t.Errorf("%d grants were made", len(granted))
	}
}

func TestWhoComesBeforeTheSalesHaveBeenReadIsToldToComeAgain(t *testing.T) {
	s := openShop(t, 10, 1)
	if err := s.stream.PutSale(t.Context(), s.sale); err != nil {
		t.Fatal(err)
	}
	c := s.starting(t, config.GrabTuning{}, gateway, config.Quotas{})
	key := http.Header{"Authorization": {"Bearer the-key-of-the-gateway"}}
	calls := []struct {
		method, path, body string
		header             http.Header
		ready              int // the answer about a sale that exists, once the sales have been read
	}{
		{"POST", "/grabs", "", as("u"), http.StatusCreated},
		{"POST", "/grabs:batch", `{"grabs":[{"user":"v"}]}`, key, http.StatusOK},
		{"GET", "", "", http.Header{}, http.StatusOK},
	}
	for _, call := range calls {
		for _, id := range []string{s.sale.ID, "nobody-made-it"} {
			status, header, got := c.call(t, call.method, "/v1/sales/"+id+call.path, call.body, call.header)
			if status != http.StatusServiceUnavailable || got["code"] != "unavailable" || got["reason"] != "the sales have not been read yet" ||
				header.Get("Retry-After") != "1" {
				t.Errorf("%s %s%s while it starts: %d %v, Retry-After %q", call.method, id, call.path, status, got, header.Get("Retry-After"))
			}
		}
	}
	for _, path := range []string{"/grabs", "/grabs:batch"} { // a stranger learns nothing else
		if status, _, got := c.call(t, "POST", "/v1/sales/"+s.sale.ID+path, "", http.Header{}); status != http.StatusUnauthorized {
			t.Errorf("a stranger at %s: %d %v", path, status, got)
		}
	}
	c.run(t)
	for _, call := range calls {
		if status, _, got := c.call(t, call.method, "/v1/sales/"+s.sale.ID+call.path, call.body, call.header); status != call.ready {
			t.Errorf("%s%s once the sales have been read: %d %v, want %d", call.method, call.path, status, got, call.ready)
		}
		if status, _, got := c.call(t, call.method, "/v1/sales/nobody-made-it"+call.path, call.body, call.header); status != http.StatusNotFound {
			t.Errorf("%s%s of a sale that nobody made: %d %v", call.method, call.path, status, got)
		}
	}
}

func TestASaleRefusesByItsStateAndItsClock(t *testing.T) {
	c := openCounter(t, config.GrabTuning{})
	path := "/v1/sales/" + c.sale.ID
	now := time.Now()
	for _, tc := range []struct {
		outcome, shown string
		change         func(*sale.Sale)
	}{
		{"not_open", "scheduled", func(s *sale.Sale) { s.StartsAt, s.EndsAt = now.Add(time.Hour), now.Add(2*time.Hour) }},
		{"ended", "ended", func(s *sale.Sale) { s.StartsAt, s.EndsAt = now.Add(-2*time.Hour), now.Add(-time.Hour) }},
		{"paused", "paused", func(s *sale.Sale) { s.Status = sale.StatusPaused }},
		{"ended", "ended", func(s *sale.Sale) { s.Status = sale.StatusEnded }},
	} {
		changed := *c.sale
		changed.Revision++
		tc.change(&changed)
		c.service.Engine().Put(&changed)
		c.sale.Revision = changed.Revision
		status, _, got := c.call(t, "POST", path+"/grabs", "", as("u"))
		if status != http.StatusConflict || got["outcome"] != tc.outcome {
			t.Errorf("%s: %d %v", tc.outcome, status, got)
		}
		if _, _, view := c.call(t, "GET", path, "", http.Header{}); view["status"] != tc.shown {
			t.Errorf("%s: the public view says %v, want %s", tc.outcome, view["status"], tc.shown)
		}
	}
}

func TestAWipedSaleAnswers503WithRetryAfter(t *testing.T) {
	c := openCounter(t, config.GrabTuning{})
	if err := c.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	status, header, got := c.call(t, "POST", "/v1/sales/"+c.sale.ID+"/grabs", "", as("u"))
	if status != http.StatusServiceUnavailable || got["outcome"] != "not_loaded" || header.Get("Retry-After") == "" {
		t.Errorf("%d %v, Retry-After %q", status, got, header.Get("Retry-After"))
	}
	_, _, view := c.call(t, "GET", "/v1/sales/"+c.sale.ID, "", http.Header{})
	if item := view["items"].([]any)[0].(map[string]any); item["remaining"] != nil {
		t.Errorf("a sale that is not loaded shows %v units", item["remaining"])
	}
}
