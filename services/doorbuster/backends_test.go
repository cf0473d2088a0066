package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/harness"
)

// A command on the backends themselves ends with an error, and soon, when one is away.
func TestACommandOnBackendsThatAreAwayEndsWithAnError(t *testing.T) {
	redis, nats, mysql := harness.Redis(t), harness.NATS(t), harness.MariaDB(t)
	s := openShop(t, "--redis="+redis.URL(), "--nats="+nats.URL(), "--mysql="+mysql.DSN("shop"))
	s.stop()
	var waiting sync.WaitGroup // each for its timeout
	for _, name := range []string{"verify", "reconcile"} {
		for _, test := range []struct{ what, nats, mysql string }{
			{"check the ledger's schema", nats.URL(), "root:a-secret@tcp(" + harness.Addr(t) + ")/shop"},
			{"reach NATS", "nats://someone:a-secret@" + harness.Addr(t), mysql.DSN("shop")},
		} {
			waiting.Go(func() {
				began := time.Now()
				code, _, stderr := command(t, name, "any", "--redis="+redis.URL(), "--nats="+test.nats, "--mysql="+test.mysql)
				if code != exitFailed || !strings.Contains(stderr, test.what) || strings.Contains(stderr, "a-secret") {
					t.Errorf("%s: exit code %d, %q, want %q", name, code, stderr, test.what)
				}
				if took := time.Since(began); took > 2*connectTimeout {
					t.Errorf("%s took %s", name, took)
				}
			})
		}
	}
	waiting.Wait()
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
	f := backendFlags{
		Redis: config.Redis{URL: "redis://me:a-secret@r1:6379/0"},
		NATS:  config.NATS{URL: "nats://me:a-secret@n1:4222, n2:4222"},
		MySQL: config.MySQL{DSN: "me:a-secret@tcp(m1:3306)/shop"},
	}
	if got, want := f.told(), "redis r1:6379, mysql m1:3306, nats n1:4222,n2:4222"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}
