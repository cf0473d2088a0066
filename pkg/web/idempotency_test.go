package web

import (
	"net/http"
	"strings"
	"testing"
)

func TestIdempotencyKey(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   string
		detail string
	}{
		{"none", nil, "", ""},
		{"one", []string{"a!~Z-0"}, "a!~Z-0", ""},
		{"64 characters", []string{strings.Repeat("k", 64)}, strings.Repeat("k", 64), ""},
		{"65 characters", []string{strings.Repeat("k", 65)}, "", "must be 1 to 64 printable ASCII characters without spaces"},
		{"empty", []string{""}, "", "must be 1 to 64 printable ASCII characters without spaces"},
		{"space", []string{"a b"}, "", "must be 1 to 64 printable ASCII characters without spaces"},
		{"control", []string{"a\x7f"}, "", "must be 1 to 64 printable ASCII characters without spaces"},
		{"not ASCII", []string{"clé"}, "", "must be 1 to 64 printable ASCII characters without spaces"},
		{"two", []string{"a", "a"}, "", "the header is given more than once"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRequest(t, http.MethodPost, "/", "")
			for _, value := range test.values {
				r.Header.Add(IdempotencyHeader, value)
			}
			got, problem := IdempotencyKey(r)
			if got != test.want || (problem == nil) != (test.detail == "") {
				t.Fatalf("%q, %v", got, problem)
			}
			if problem != nil && (problem.Status != http.StatusBadRequest || problem.Field != "Idempotency-Key" || problem.Detail != test.detail) {
				t.Errorf("%+v", problem)
			}
		})
	}
}
