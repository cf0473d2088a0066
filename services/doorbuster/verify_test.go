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

// What answers there may be a portal or a balancer: an answer without checks is neither yes nor no.
func TestAStrangersAnswerIsNoVerification(t *testing.T) {
	for _, text := range []string{`{"status":"ok"}`, `{"ok":true,"at_rest":true}`, `{"sale_id":"s","ok":true,"at_rest":true}`} {
		stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		defer stranger.Close()
		code, stdout, stderr := command(t, "verify", "s", "--admin-key=a-key", "--url="+stranger.URL)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "nothing was checked: "+stranger.URL+" answered what is no verification") {
			t.Errorf("%s: exit code %d, %q%q", text, code, stdout, stderr)
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
