package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

// small is a demonstration that a test has time for.
var small = []string{"demo", "--units=60", "--users=600", "--rate=200"}

var keptLine = regexp.MustCompile(`(?m)^(kept|BROKEN) `)

func TestTheDemoKeepsEveryPromise(t *testing.T) {
	// Somebody's shop: the demo must not touch it.
	for _, name := range []string{"DOORBUSTER_REDIS", "DOORBUSTER_NATS", "DOORBUSTER_MYSQL"} {
		t.Setenv(name, map[string]string{
			"DOORBUSTER_REDIS": "redis://127.0.0.1:1", "DOORBUSTER_NATS": "nats://127.0.0.1:1",
			"DOORBUSTER_MYSQL": "shop:x@tcp(127.0.0.1:1)/shop",
		}[name])
	}
	stdout := succeed(t, small...)
	contains(t, "demo", stdout, "60 orders of 60 units", "60 distinct users", "Redis lost everything (FLUSHALL) after", "p99.9", "0 violated")
	if lines := keptLine.FindAllString(stdout, -1); len(lines) != 6 || strings.Contains(stdout, "BROKEN") {
		t.Errorf("promises %q:\n%s", lines, stdout)
	}
}

func TestTheDemoRunsOnRealServers(t *testing.T) {
	p := harness.Process(t, harness.Binary(t, "services/doorbuster"), append(small, "--real"), nil)
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	contains(t, "demo", p.Stdout(), "SIGKILL of redis-server", "60 orders of 60 units", "60 distinct users")
}

func TestAWinnerWithoutAnOrderIsFound(t *testing.T) {
	s := openShop(t)
	succeed(t, "sale", "create", "--id=lost", "--name=Lost", "--item=A:3", "--approve")
	order := s.grab(t, "lost", "ann", "k")
	a := newAPI(adminAddress(config.AdminURL{URL: s.address}), "")
	defer a.close()
	lost, err := a.lostWinners(t.Context(), []load.Winner{
		{User: "ann", OrderID: order},
		{User: "bob", OrderID: order},
		{User: "eve", OrderID: "lost.00000000000000000000000000"},
	})
	must(t, err)
	if len(lost) != 2 {
		t.Errorf("without an order: %+v", lost)
	}
}

func TestABrokenPromiseFailsTheDemo(t *testing.T) {
	var out output
	d := &demo{term: terminal{&out, &out}}
	if err := d.conclude([]promise{{"one", true}, {"two", true}}); err != nil {
		t.Error(err)
	}
	err := d.conclude([]promise{{"one", true}, {"two", false}})
	if exitStatus(errors.Join(err, nil)) != exitNo || !strings.Contains(out.String(), "BROKEN  two") {
		t.Errorf("error %v:\n%s", err, &out)
	}
}

func TestProgressIsReadableWithoutATerminal(t *testing.T) {
	var out output
	screen := newLive(&out)
	for range 100 {
		screen.show("early")
	}
	screen.last = time.Now().Add(-quietly)
	screen.show("later")
	screen.show("last")
	screen.end()
	if got := out.String(); got != "later\nlast\n" {
		t.Errorf("shown: %q", got)
	}
	if got := bar(1, 4); got != "[#####---------------]" {
		t.Errorf("a quarter is %s", got)
	}
}
