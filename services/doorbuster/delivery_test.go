package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

func TestAnOperatorFollowsWebhooksFromTheCommandLine(t *testing.T) {
	var status atomic.Int64
	status.Store(http.StatusGone)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	defer receiver.Close()
	s := openShop(t, "--webhook-secrets=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	host := strings.TrimPrefix(receiver.URL, "http://")
	created := succeed(t, "sale", "create", "--id=tv", "--name=Television", "--item=TV:100", "--approve",
		"--fulfilment="+receiver.URL+"/hook?token=secret", "--fulfil-on=created", "--give-up-after=90s", "--on-failure=rollback")
	contains(t, "create", created, host+" is called when an order is created, for 1m30s, then rollback")
	contains(t, "change", succeed(t, "sale", "change", "tv", "--fulfilment="+receiver.URL+"/hook?token=secret"),
		host+" is called when an order is paid, for 24h0m0s, then park")
	order := s.grab(t, "tv", "ann", "k")
	harness.Eventually(t, 30*time.Second, "the order is written", func() (bool, string) {
		text := succeed(t, "order", "show", order)
		return strings.Contains(text, "pending_payment"), text
	})
	succeed(t, "order", "pay", order)
	harness.Eventually(t, 30*time.Second, "the delivery is parked", func() (bool, string) {
		text := succeed(t, "sale", "deliveries", "tv", "--status=parked")
		return strings.Contains(text, order), text
	})
	shown := succeed(t, "order", "delivery", order)
	contains(t, "delivery", shown, order, host, "parked", "status 410")
	if strings.Contains(created+shown, "token") {
		t.Errorf("a token is printed:\n%s%s", created, shown)
	}

	status.Store(http.StatusOK)
	contains(t, "resend", succeed(t, "order", "resend", order), order)
	harness.Eventually(t, 30*time.Second, "the order is fulfilled", func() (bool, string) {
		text := succeed(t, "order", "show", order)
		return strings.Contains(text, "fulfilled"), text
	})
	contains(t, "listing", succeed(t, "sale", "deliveries", "tv", "--json"), `"status": "delivered"`)
	if text := succeed(t, "sale", "change", "tv", "--no-fulfilment"); strings.Contains(text, "is called") {
		t.Errorf("the fulfilment was not ended:\n%s", text)
	}
	for want, args := range map[string][]string{
		"no_fulfilment (409)":              {"order", "resend", order},
		"invalid_field (400) status":       {"sale", "deliveries", "tv", "--status=lost"},
		"invalid_field (400) fulfilment":   {"sale", "change", "tv", "--fulfilment=shop.example"},
		"delivery_not_found (404)":         {"order", "delivery", strings.Replace(order, "tv.", "other.", 1)},
		"can't be used together":           {"sale", "change", "tv", "--no-fulfilment", "--fulfilment=http://x"},
		"invalid_field (400) fulfilment.u": {"sale", "create", "--name=x", "--item=A:1", "--on-failure=park"},
	} {
		if code, _, stderr := command(t, args...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}
