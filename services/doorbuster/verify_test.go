package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/reconcile"
)

func TestVerifyWaitsForRestAndMakesEveryComparison(t *testing.T) {
	s := openShop(t)
	succeed(t, "sale", "create", "--id=busy", "--name=Busy", "--item=A:3", "--approve")
	s.grab(t, "busy", "ann", "k")
	text := succeed(t, "verify", "busy", "--wait=30s")
	if strings.Contains(text, "skipped") || strings.Contains(text, "not at rest") {
		t.Errorf("right after a win:\n%s", text)
	}
	contains(t, "verify", text, "0 violated, 1 note")
	for _, c := range comparisons {
		contains(t, "verify", text, c.Name)
	}
	succeed(t, "sale", "create", "--id=draft", "--name=Draft", "--item=A:3")
	contains(t, "a draft", succeed(t, "verify", "draft"), "6 skipped", "not loaded")
}

// What answers there may be a portal or a balancer, and its answer neither yes nor no.
func TestAStrangersAnswerIsNone(t *testing.T) {
	for _, test := range []struct {
		answer string
		args   []string
		want   string
	}{
		{`{"status":"ok"}`, []string{"verify", "s"}, "answered what is no verification of sale s"},
		{`{"ok":true,"at_rest":true}`, []string{"verify", "s"}, "answered what is no verification of sale s"},
		{`{"sale_id":"s","ok":true,"at_rest":true}`, []string{"verify", "s"}, "answered what is no verification of sale s"},
		{`{"status":"ok"}`, []string{"reconcile", "s"}, "answered what is no report on sale s"},
		{`{"status":"ok"}`, []string{"quota", "deduct", "k", "1"}, "answered what is no deduction"},
	} {
		stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(test.answer)) }))
		defer stranger.Close()
		code, stdout, stderr := command(t, append(test.args, "--admin-key=a-key", "--url="+stranger.URL)...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, stranger.URL+" "+test.want) {
			t.Errorf("%v of %s: exit code %d, %q%q", test.args, test.answer, code, stdout, stderr)
		}
	}
}

func TestAMovingSaleIsLookedAtAgainUntilTheTimeIsOver(t *testing.T) {
	looks := 0
	restsAt := func(n int) func(context.Context, string) (reconcile.Verification, error) {
		looks = 0
		return func(context.Context, string) (reconcile.Verification, error) {
			looks++
			return reconcile.Verification{OK: true, Loaded: true, AtRest: looks == n}, nil
		}
	}
	if v, err := atRestWithin(t.Context(), time.Minute, "s", restsAt(3)); err != nil || !v.AtRest || looks != 3 {
		t.Errorf("%d looks: %+v, %v", looks, v, err)
	}
	v, err := atRestWithin(t.Context(), 2*restPoll, "s", restsAt(-1))
	if err != nil || v.AtRest || looks < 2 {
		t.Errorf("%d looks: %+v, %v", looks, v, err)
	}
	var out output
	must(t, writeVerification(&out, &v))
	contains(t, "verify", out.String(), "redis_remaining", "skipped", "0 checks, 0 violated, 6 skipped")
}
