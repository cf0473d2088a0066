package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Every body ends with one newline, so that a terminal's prompt is not glued to it.
func TestEveryBodyEndsWithANewline(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"problem":  func(w http.ResponseWriter, r *http.Request) { Fail(w, r, NotFound("nothing here")) },
		"fault":    func(w http.ResponseWriter, r *http.Request) { Fail(w, r, Internal()) },
		"success":  func(w http.ResponseWriter, _ *http.Request) { Write(w, http.StatusOK, 1) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { Write(w, http.StatusOK, func() {}) },
		"appender": func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, NotFound("")) },
	} {
		w := httptest.NewRecorder()
		answer(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if body := w.Body.String(); !strings.HasSuffix(body, "}\n") && body != "1\n" {
			t.Errorf("%s: %q", name, body)
		}
	}
}
