package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/harness"
)

// A command on the backends themselves says soon which of them is away, and where it
// looked. The answer is not no then: nothing was checked.
func TestACommandOnBackendsThatAreAwayTellsWhich(t *testing.T) {
	redis, nats, mysql := harness.Redis(t), harness.NATS(t), harness.MariaDB(t)
	s := openShop(t, "--redis="+redis.URL(), "--nats="+nats.URL(), "--mysql="+mysql.DSN("shop"))
	s.stop()
	away := harness.Addr(t)
	var waiting sync.WaitGroup // each for its timeout
	for name, told := range map[string]string{"verify": "nothing was checked", "reconcile": "nothing was changed"} {
		for _, test := range []struct{ backend, redis, nats, mysql string }{
			{"redis", "redis://someone:a-secret@" + away, nats.URL(), mysql.DSN("shop")},
			{"mysql", redis.URL(), nats.URL(), "root:a-secret@tcp(" + away + ")/shop"},
			{"nats", redis.URL(), "nats://someone:a-secret@" + away, mysql.DSN("shop")},
		} {
			waiting.Go(func() {
				began := time.Now()
				code, stdout, stderr := command(t, name, "any", "--redis="+test.redis, "--nats="+test.nats, "--mysql="+test.mysql)
				want := told + ": " + test.backend + " at " + away + " can't be reached: "
				if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) || strings.Contains(stderr, "a-secret") {
					t.Errorf("%s: exit code %d, %q%q, want %q", name, code, stdout, stderr, want)
				}
				if took := time.Since(began); took > 2*connectTimeout {
					t.Errorf("%s took %s", name, took)
				}
			})
		}
	}
	waiting.Wait()
}

// As a person sees it: one line, without what the client of Redis says by itself.
func TestAnUnreachableRedisIsToldInOneLine(t *testing.T) {
	away := harness.Addr(t)
	p := harness.Process(t, harness.Binary(t, "services/doorbuster"), []string{
		"verify", "any", "--redis=redis://" + away, "--nats=nats://" + away, "--mysql=root@tcp(" + away + ")/shop",
	}, nil)
	if code := p.Wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	want := "doorbuster verify: nothing was checked: redis at " + away + " can't be reached: "
	if got := p.Output(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("told %q, want one line that begins with %q", got, want)
	}
}

// Variables that were exported for the services must not hide an address that was typed.
func TestAGivenURLWinsOverExportedBackends(t *testing.T) {
	s := openShop(t)
	succeed(t, "sale", "create", "--id=here", "--name=Here", "--item=A:3", "--approve")
	t.Setenv("DOORBUSTER_REDIS", "redis://127.0.0.1:1")
	for _, name := range []string{"verify", "reconcile"} {
		code, _, stderr := command(t, name, "here", "--url="+s.address)
		if code != 0 || !strings.Contains(stderr, "by URL "+s.address) {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
		code, _, stderr = command(t, name, "here")
		if code != exitFailed || !strings.Contains(stderr, "DOORBUSTER_NATS") {
			t.Errorf("%s with one variable: exit code %d: %s", name, code, stderr)
		}
	}
}

func TestHostsAreToldWithoutCredentials(t *testing.T) {
	f := backendFlags{config.Backends{
		Redis: config.Redis{URL: "redis://me:a-secret@r1:6379/0"},
		NATS:  config.NATS{URL: "nats://me:a-secret@n1:4222, n2:4222"},
		MySQL: config.MySQL{DSN: "me:a-secret@tcp(m1:3306)/shop"},
	}}
	if got, want := f.told(), "redis r1:6379, mysql m1:3306, nats n1:4222,n2:4222"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}
