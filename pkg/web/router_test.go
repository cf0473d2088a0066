package web

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func wantRequests(t *testing.T, registry *prometheus.Registry, route, method, code string, want float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "doorbuster_http_requests_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["route"] == route && labels["method"] == method && labels["code"] == code {
				if got := metric.GetCounter().GetValue(); got != want {
					t.Errorf("%s %s %s counted %v times, want %v", method, route, code, got, want)
				}
				return
			}
		}
	}
	t.Errorf("%s %s %s is not there", method, route, code)
}

func TestRouterServesAndCountsByPattern(t *testing.T) {
	router, registry, log := newRouter(t)
	router.HandleFunc("GET /v1/sales/{sale_id}", func(w http.ResponseWriter, r *http.Request) {
		Write(w, http.StatusOK, r.PathValue("sale_id"))
	})
	for _, id := range []string{"a", "b"} {
		if w := serve(router, newRequest(t, http.MethodGet, "/v1/sales/"+id, "")); w.Code != http.StatusOK || w.Body.String() != `"`+id+"\"\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	wantRequests(t, registry, "/v1/sales/{sale_id}", "GET", "200", 2)
	if !strings.Contains(log.String(), `"msg":"request served","method":"GET","path":"/v1/sales/b","route":"GET /v1/sales/{sale_id}","status":200`) {
		t.Errorf("access log: %s", log)
	}
}

func TestUnknownPathsAreProblems(t *testing.T) {
	router, registry, _ := newRouter(t)
	router.HandleFunc("GET /known", func(http.ResponseWriter, *http.Request) {})
	w := serve(router, newRequest(t, http.MethodGet, "/user-17", ""))
	if body := problemOf(t, w); w.Code != http.StatusNotFound || body["code"] != CodeNotFound || strings.Contains(w.Body.String(), "page not found") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantRequests(t, registry, "unmatched", "other", "404", 1)
}

func TestARouterMayAnswerOtherwiseThanThatThereIsNoSuchPath(t *testing.T) {
	router, registry, _ := newRouter(t)
	router.HandleFunc("GET /known", func(http.ResponseWriter, *http.Request) {})
	router.Otherwise(Unavailable(CodeUnavailable, "come again", time.Second))
	for _, r := range []*http.Request{newRequest(t, http.MethodGet, "/", ""), newRequest(t, http.MethodPost, "/unknown/path", "{}")} {
		w := serve(router, r)
		if body := problemOf(t, w); w.Code != http.StatusServiceUnavailable || body["code"] != CodeUnavailable || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s %s: %d %v %s", r.Method, r.URL, w.Code, w.Header(), w.Body)
		}
	}
	if w := serve(router, newRequest(t, http.MethodGet, "/known", "")); w.Code != http.StatusOK {
		t.Errorf("a route that is there: %d %s", w.Code, w.Body)
	}
	wantRequests(t, registry, "unmatched", "other", "503", 2)
}

func TestWrongMethodsAreProblemsThatNameTheRightOnes(t *testing.T) {
	router, registry, _ := newRouter(t)
	router.HandleFunc("GET /known", func(http.ResponseWriter, *http.Request) {})
	router.HandleFunc("PUT /known", func(http.ResponseWriter, *http.Request) {})
	w := serve(router, newRequest(t, http.MethodPost, "/known", ""))
	body := problemOf(t, w)
	if w.Code != http.StatusMethodNotAllowed || body["code"] != CodeMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD, PUT" ||
		body["detail"] != "this path takes GET, HEAD, PUT" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	wantRequests(t, registry, "unmatched", "other", "405", 1)
}

func TestAHandlersOwnErrorsAreLeftAlone(t *testing.T) {
	router, _, _ := newRouter(t)
	router.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) })
	if w := serve(router, newRequest(t, http.MethodGet, "/metrics", "")); w.Code != http.StatusServiceUnavailable || w.Body.String() != "busy\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAPanicBecomesAProblem(t *testing.T) {
	router, registry, log := newRouter(t)
	router.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("out of cheese") })
	w := serve(router, newRequest(t, http.MethodGet, "/panic", ""))
	body := problemOf(t, w)
	id := w.Header().Get("X-Request-ID")
	if w.Code != http.StatusInternalServerError || body["code"] != CodeInternal || id == "" || body["request_id"] != id {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "cheese") || !strings.Contains(log.String(), "cheese") || !strings.Contains(log.String(), id) {
		t.Errorf("body %s\nlog %s", w.Body, log)
	}
	wantRequests(t, registry, "/panic", "GET", "500", 1)
}

func TestAPanicAfterTheAnswerBeganKeepsTheAnswer(t *testing.T) {
	router, _, _ := newRouter(t)
	router.HandleFunc("GET /panic", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		panic("too late")
	})
	if w := serve(router, newRequest(t, http.MethodGet, "/panic", "")); w.Code != http.StatusAccepted || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAnAbortedResponseStaysAborted(t *testing.T) {
	router, _, log := newRouter(t)
	router.HandleFunc("GET /abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	defer func() {
		if cause, _ := recover().(error); !errors.Is(cause, http.ErrAbortHandler) || strings.Contains(log.String(), "panicked") {
			t.Errorf("recovered %v, log %s", cause, log)
		}
	}()
	serve(router, newRequest(t, http.MethodGet, "/abort", ""))
}

func TestOnlySaneRequestIDsAreEchoed(t *testing.T) {
	router, _, _ := newRouter(t)
	router.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for sent, want := range map[string]string{
		"req-1_a.B": "req-1_a.B", "": "", "a b": "", "a\nb": "", "ü": "", strings.Repeat("x", 64): strings.Repeat("x", 64), strings.Repeat("x", 65): "",
	} {
		w := serve(router, newRequest(t, http.MethodGet, "/", "", "X-Request-ID", sent))
		if got := w.Header().Get("X-Request-ID"); got != want {
			t.Errorf("sent %q, got %q", sent, got)
		}
	}
}

func TestHandlersReachTheConnectionThroughTheRouter(t *testing.T) {
	router, _, _ := newRouter(t)
	router.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	if w := serve(router, newRequest(t, http.MethodGet, "/", "")); !w.Flushed {
		t.Error("not flushed")
	}
}

func TestInformationalStatusesAreNotTheAnswer(t *testing.T) {
	router, registry, _ := newRouter(t)
	router.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusConflict)
	})
	serve(router, newRequest(t, http.MethodGet, "/", ""))
	wantRequests(t, registry, "/", "GET", "409", 1)
}

func TestMetricsAreWellFormed(t *testing.T) {
	router, registry, _ := newRouter(t)
	router.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func BenchmarkRouter(b *testing.B) {
	router, _, _ := newRouter(b)
	router.log = discardLog()
	answer := []byte("{}")
	router.HandleFunc("POST /v1/sales/{sale_id}/grabs", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
	r := newRequest(b, http.MethodPost, "/v1/sales/s1/grabs", "")
	w := httptest.NewRecorder()
	w.Body = bytes.NewBuffer(make([]byte, 0, 1<<20))
	b.ReportAllocs()
	for b.Loop() {
		w.Body.Reset()
		router.ServeHTTP(w, r)
	}
}
