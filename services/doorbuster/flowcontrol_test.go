package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

func TestAnOperatorSlowsGrabsDownFromTheCommandLine(t *testing.T) {
	s := openShop(t)
	contains(t, "at first", succeed(t, "flow-control", "get"), "per user     as each process is configured", "in flight    as each process is configured", "revision     0")
	succeed(t, "sale", "create", "--id=tv", "--name=Television", "--item=TV:100", "--approve")
	s.grab(t, "tv", "ann", "k")

	contains(t, "set", succeed(t, "flow-control", "set", "--per-user=0.01:1", "--per-ip=off", "--in-flight-max=500"),
		"per user     0.01 per second, 1 at once", "per address  off", "in flight    500")
	harness.Eventually(t, time.Second, "ann is slowed down", func() (bool, string) {
		status, body := s.ask(t, http.MethodPost, "/v1/sales/tv/grabs", "ann", "k")
		text, _ := json.Marshal(body)
		return status == http.StatusTooManyRequests && body["policy"] == "user", string(text)
	})
	contains(t, "what is left out stays", succeed(t, "flow-control", "set", "--in-flight-max=config"),
		"per user     0.01 per second, 1 at once", "in flight    as each process is configured")
	contains(t, "set back", succeed(t, "flow-control", "set", "--per-user=config", "--json"), `"per_user": null`)
	harness.Eventually(t, time.Second, "ann is heard again", func() (bool, string) {
		status, _ := s.ask(t, http.MethodPost, "/v1/sales/tv/grabs", "ann", "k")
		return status == http.StatusCreated, ""
	})
}

func TestAWrongFlowControlIsToldByName(t *testing.T) {
	openShop(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "give at least one of"},
		{[]string{"--per-user=5"}, "--per-user 5: must be RATE:BURST"},
		{[]string{"--per-ip=x:5"}, "--per-ip x:5: must be RATE:BURST"},
		{[]string{"--per-ip=1:x"}, "--per-ip 1:x: must be RATE:BURST"},
		{[]string{"--per-user=0:0"}, "--per-user 0:0: a rate of 0 would refuse nobody: use off"},
		{[]string{"--per-ip=0.0:5"}, "use off"},
		{[]string{"--in-flight-max=many"}, "--in-flight-max many: must be a number"},
		{[]string{"--per-user=1:0"}, "invalid_field (400) per_user.burst"},
		{[]string{"--per-ip=-1:5"}, "invalid_field (400) per_ip.rate"},
		{[]string{"--in-flight-max=0"}, "invalid_field (400) in_flight_max: must be 1 to 1000000"},
	} {
		code, _, stderr := command(t, append([]string{"flow-control", "set"}, test.args...)...)
		if code != exitFailed || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit code %d, %q, want %q", test.args, code, stderr, test.want)
		}
	}
}
