package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { harness.Main(m) }

// newRequest makes a request with a body, unless it is empty, and headers given
// in pairs of name and value.
func newRequest(t testing.TB, method, path, body string, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// serve lets a handler answer a request.
func serve(handler http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// problemOf reads a response that must be a problem.
func problemOf(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type is %q: %s", got, w.Body)
	}
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if status, _ := body["status"].(float64); int(status) != w.Code {
		t.Errorf("status in the body is %v, of the response %d", body["status"], w.Code)
	}
	return body
}

// newRouter returns a router with its registry and what it logs.
func newRouter(t testing.TB) (*Router, *prometheus.Registry, *strings.Builder) {
	t.Helper()
	registry := prometheus.NewRegistry()
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return NewRouter(telemetry.NewHTTPMetrics(registry), logger), registry, &log
}
