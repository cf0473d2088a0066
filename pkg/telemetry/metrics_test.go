package telemetry

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// all registers every metric of every stage.
func all(registry prometheus.Registerer) (*GrabMetrics, *OrderMetrics, *ReconcileMetrics, *HTTPMetrics) {
	NewEventMetrics(registry, []string{"paid"})
	NewWebhookMetrics(registry, []string{"timeout"}, []string{"parked"})
	return NewGrabMetrics(registry, []string{"won", "sold_out"}),
		NewOrderMetrics(registry, []string{"orders", "flows"}, []string{"deadlock"}),
		NewReconcileMetrics(registry, []string{"ok", "failed"}, []string{"audit", "load"}, []string{"fold"}, []string{"remaining"}),
		NewHTTPMetrics(registry)
}

func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	MetricsHandler(registry).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestEveryKnownLabelStartsAtZero(t *testing.T) {
	registry := NewRegistry()
	_, _, _, web := all(registry)
	web.Route("/v1/sales/{sale_id}", "GET")
	page := scrape(t, registry)
	for _, line := range []string{
		`doorbuster_grab_outcomes_total{outcome="won"} 0`,
		`doorbuster_grab_outcomes_total{outcome="sold_out"} 0`,
		`doorbuster_grab_pending_total 0`,
		`doorbuster_grab_script_seconds_count 0`,
		`doorbuster_order_rows_total{table="flows"} 0`,
		`doorbuster_order_retries_total{reason="deadlock"} 0`,
		`doorbuster_event_published_total{kind="paid"} 0`,
		`doorbuster_event_lag_seconds 0`,
		`doorbuster_webhook_calls_total{result="timeout"} 0`,
		`doorbuster_webhook_ended_total{state="parked"} 0`,
		`doorbuster_reconcile_runs_total{reason="load",result="failed"} 0`,
		`doorbuster_reconcile_drift_total{kind="remaining"} 0`,
		`doorbuster_reconcile_step_seconds_count{step="fold"} 0`,
		`doorbuster_http_requests_total{code="503",method="GET",route="/v1/sales/{sale_id}"} 0`,
		`doorbuster_http_request_seconds_count{route="/v1/sales/{sale_id}"} 0`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(page, "\n"+name+" ") {
			t.Errorf("missing: %s", name)
		}
	}
}

func TestNamesFollowTheHouseRule(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, _, _, web := all(registry)
	web.Route("/", "GET")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	ours := regexp.MustCompile(`^doorbuster_(grab|order|event|webhook|reconcile|http)_[a-z_]+$`)
	for _, family := range families {
		name, kind := family.GetName(), family.GetType().String()
		if !ours.MatchString(name) || (kind == "COUNTER") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s %s", kind, name)
		}
	}
}

func TestALabelValueNobodyAnnouncedAddsNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	grab := NewGrabMetrics(registry, []string{"won"})
	grab.Outcomes.Of("won").Inc()
	grab.Outcomes.Of("user-17").Inc()
	grab.Outcomes.Of("user-18").Inc()
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP doorbuster_grab_outcomes_total Answers to grabs by outcome.
# TYPE doorbuster_grab_outcomes_total counter
doorbuster_grab_outcomes_total{outcome="other"} 2
doorbuster_grab_outcomes_total{outcome="won"} 1
`), "doorbuster_grab_outcomes_total")
	if err != nil {
		t.Error(err)
	}
}

func TestRouteCountsByStatus(t *testing.T) {
	registry := NewRegistry()
	route := NewHTTPMetrics(registry).Route("/v1/orders/{order_id}", "GET")
	route.Observe(http.StatusOK, time.Millisecond)
	route.Observe(http.StatusOK, time.Millisecond)
	route.Observe(http.StatusTeapot, time.Second)
	page := scrape(t, registry)
	for _, line := range []string{
		`doorbuster_http_requests_total{code="200",method="GET",route="/v1/orders/{order_id}"} 2`,
		`doorbuster_http_requests_total{code="418",method="GET",route="/v1/orders/{order_id}"} 1`,
		`doorbuster_http_request_seconds_bucket{route="/v1/orders/{order_id}",le="0.001"} 2`,
		`doorbuster_http_request_seconds_count{route="/v1/orders/{order_id}"} 3`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestLoggerWritesWhatItIsToldTo(t *testing.T) {
	var out bytes.Buffer
	logger, err := NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("hidden")
	logger.Warn("shown", "sale_id", "s1")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["msg"] != "shown" || line["sale_id"] != "s1" {
		t.Errorf("%v: %s", err, out.String())
	}
	if _, err := NewLogger(&out, "loud", "json"); err == nil {
		t.Error("level loud was accepted")
	}
	if _, err := NewLogger(&out, "info", "xml"); err == nil {
		t.Error("format xml was accepted")
	}
}

func BenchmarkRouteObserve(b *testing.B) {
	route := NewHTTPMetrics(NewRegistry()).Route("/", "GET")
	b.ReportAllocs()
	for b.Loop() {
		route.Observe(http.StatusConflict, time.Millisecond)
	}
}
