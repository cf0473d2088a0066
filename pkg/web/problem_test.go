package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestProblemOnTheWire(t *testing.T) {
	for _, test := range []struct {
		problem *Problem
		want    string
	}{
		{NotFound("there is no such sale"),
			`{"type":"about:blank","title":"Not Found","status":404,"code":"not_found","detail":"there is no such sale"}`},
		{InvalidField("items.quantity", `must be 1, not "<0>"`),
			`{"type":"about:blank","title":"Bad Request","status":400,"code":"invalid_field","detail":"must be 1, not \"\u003c0\u003e\"","field":"items.quantity"}`},
		{Conflict(CodeConflict, "").With("outcome", "sold_out").With("remaining", 0).With("big", int64(1)<<40).With("live", true),
			`{"type":"about:blank","title":"Conflict","status":409,"code":"conflict","outcome":"sold_out","remaining":0,"big":1099511627776,"live":true}`},
		{Conflict(CodeConflict, "").With("limit", map[string]int{"max": 2}).With("limit", []string{"user"}),
			`{"type":"about:blank","title":"Conflict","status":409,"code":"conflict","limit":["user"]}`},
		{BadRequest("sale ünknown\n").With("broken", func() {}),
			`{"type":"about:blank","title":"Bad Request","status":400,"code":"bad_request","detail":"sale ünknown\n","broken":null}`},
	} {
		got, err := json.Marshal(test.problem)
		if err != nil || string(got) != test.want {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, test.want)
		}
	}
}

func TestFailSetsTheHeaders(t *testing.T) {
	r := newRequest(t, http.MethodGet, "/", "")
	for _, test := range []struct {
		problem            *Problem
		retryAfter, method string
	}{
		{Unavailable(CodeNotLoaded, "", 0), "1", ""},
		{Unavailable(CodeUnavailable, "", 1001*time.Millisecond), "2", ""},
		{NewProblem(http.StatusTooManyRequests, CodeRateLimited, "").WithRetryAfter(-time.Second), "1", ""},
		{Unauthorized(""), "", `Bearer realm="doorbuster"`},
		{Conflict(CodeConflict, ""), "", ""},
	} {
		w := httptest.NewRecorder()
		Fail(w, r, test.problem)
		body := problemOf(t, w)
		if body["code"] != test.problem.Code || w.Header().Get("Retry-After") != test.retryAfter ||
			w.Header().Get("WWW-Authenticate") != test.method || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
			t.Errorf("%v: %v %s", test.problem, w.Header(), w.Body)
		}
	}
}

func TestOneProblemAnswersManyRequests(t *testing.T) {
	shared := Internal()
	before, _ := json.Marshal(shared)
	for _, id := range []string{"first", "second"} {
		w := httptest.NewRecorder()
		Fail(w, newRequest(t, http.MethodGet, "/", "", "X-Request-ID", id), shared)
		if got := problemOf(t, w)["request_id"]; got != id {
			t.Errorf("request id is %v, want %s", got, id)
		}
	}
	if after, _ := json.Marshal(shared); string(after) != string(before) {
		t.Errorf("the problem became %s", after)
	}
}

func TestFailureTellsProblemsFromFaults(t *testing.T) {
	r := newRequest(t, http.MethodGet, "/", "")
	w := httptest.NewRecorder()
	Failure(w, r, fmt.Errorf("cancel order: %w", Conflict(CodeOrderNotCancellable, "")))
	if body := problemOf(t, w); w.Code != http.StatusConflict || body["code"] != CodeOrderNotCancellable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	Failure(w, r, errors.New("dial tcp: password=hunter2"))
	body := problemOf(t, w)
	if w.Code != http.StatusInternalServerError || body["code"] != CodeInternal || body["detail"] != "the service failed; the log says why" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if id := w.Header().Get("X-Request-ID"); id == "" || body["request_id"] != id {
		t.Errorf("header says %q, body %v", id, body["request_id"])
	}
}

func TestProblemIsAnError(t *testing.T) {
	var err error = Conflict(CodeNotLoaded, "the sale is over")
	if err.Error() != "not_loaded: the sale is over" || (&Problem{Code: CodeNotLoaded}).Error() != "not_loaded" {
		t.Error(err)
	}
}

func TestWriteAnswersWithJSON(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, http.StatusCreated, map[string]string{"outcome": "won"})
	if w.Code != http.StatusCreated || w.Body.String() != "{\"outcome\":\"won\"}\n" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	w = httptest.NewRecorder()
	Write(w, http.StatusOK, func() {})
	if body := problemOf(t, w); w.Code != http.StatusInternalServerError || body["code"] != CodeInternal {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func BenchmarkFail(b *testing.B) {
	r := newRequest(b, http.MethodPost, "/", "")
	problem := Conflict(CodeConflict, "every unit is taken").With("outcome", "sold_out")
	w := discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		Fail(w, r, problem)
	}
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
