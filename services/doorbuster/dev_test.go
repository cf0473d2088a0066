package main

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

// A process of its own, as a person runs it: one line when it is ready, a clean
// stop, and everything still there at the next start.
func TestDevPrintsOneLineStopsCleanlyAndGoesOnWhereItWas(t *testing.T) {
	program, data := harness.Binary(t, "services/doorbuster"), harness.Folder(t, "dev")
	start := func() (*harness.ChildProcess, *shop) {
		p := harness.Process(t, program, []string{"dev", "--listen", "127.0.0.1:0", "--data", data, "--admin-key", "a-key-of-16-chars"}, nil)
		line := p.WaitLine(regexp.MustCompile(`^doorbuster dev ready address=(\S+) admin_key=a-key-of-16-chars \(development only: embedded redis, nats, mysql\)$`), time.Minute)
		t.Setenv("DOORBUSTER_URL", line[1])
		return p, &shop{address: line[1]}
	}
	t.Setenv("DOORBUSTER_ADMIN_KEY", "a-key-of-16-chars")
	first, s := start()
	if status, _ := s.ask(t, http.MethodGet, "/readyz", "", ""); status != http.StatusOK {
		t.Errorf("announced, and /readyz says %d", status)
	}
	succeed(t, "sale", "create", "--id=kept", "--name=Kept", "--item=A:5", "--approve")
	order := s.grab(t, "kept", "ann", "k1")
	first.Terminate()
	if code := first.Wait(); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
	if lines := strings.Count(first.Stdout(), "\n"); lines != 1 {
		t.Errorf("%d lines on standard output:\n%s", lines, first.Stdout())
	}

	second, s := start()
	if status, body := s.ask(t, http.MethodGet, "/v1/orders/"+order+"?wait=10s", "ann", ""); status != http.StatusOK || body["status"] != "pending_payment" {
		t.Errorf("the order after the restart: %d %v", status, body)
	}
	// Redis begins empty: the sale is restored before anything is sold.
	if again := s.grab(t, "kept", "ann", "k1"); again != order {
		t.Errorf("the same key won %s, before the restart %s", again, order)
	}
	s.grab(t, "kept", "bob", "k2")
	harness.Eventually(t, 30*time.Second, "both are sold", func() (bool, string) {
		text := succeed(t, "sale", "show", "kept")
		return strings.Contains(text, "loaded") && strings.Contains(text, "A    5      3          2"), text
	})
	second.Interrupt()
	if code := second.Wait(); code != 0 {
		t.Fatalf("exit code %d after SIGINT", code)
	}
}

func TestDevRunsOnGivenBackends(t *testing.T) {
	redis, nats, mysql := harness.Redis(t), harness.NATS(t), harness.MariaDB(t)
	backends := []string{"--redis=" + redis.URL(), "--nats=" + nats.URL(), "--mysql=" + mysql.DSN("not_there_yet")}
	s := openShop(t, backends...)
	succeed(t, "sale", "create", "--id=real", "--name=Real", "--item=A:3", "--approve")
	s.grab(t, "real", "ann", "k")
	harness.Eventually(t, 30*time.Second, "order written", func() (bool, string) {
		text := succeed(t, "sale", "orders", "real")
		return strings.Contains(text, "ann"), text
	})
	// The same questions, on the backends themselves.
	verify := succeed(t, append([]string{"verify", "real"}, backends...)...)
	contains(t, "verify", verify, "no oversell", "holds", "0 violated")
	contains(t, "reconcile", succeed(t, append([]string{"reconcile", "real", "--force"}, backends...)...), "restored", "remaining A=2", "commit")
	contains(t, "verify", succeed(t, "verify", "real", "--json"), `"ok": true`)
	code, _, stderr := command(t, append([]string{"verify", "nothing"}, backends...)...)
	if code != exitFailed || !strings.Contains(stderr, "nothing was checked: verify sale nothing: sale nothing: not found") {
		t.Errorf("an unknown sale: exit code %d: %s", code, stderr)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestVerifyFailsWhenAGuaranteeIsBroken(t *testing.T) {
	redis, nats, mysql := harness.Redis(t), harness.NATS(t), harness.MariaDB(t)
	backends := []string{"--redis=" + redis.URL(), "--nats=" + nats.URL(), "--mysql=" + mysql.DSN("shop")}
	s := openShop(t, append(backends, "--audit-interval=1h")...)
	succeed(t, "sale", "create", "--id=broken", "--name=Broken", "--item=A:3", "--approve")
	s.grab(t, "broken", "ann", "k")
	harness.Eventually(t, 30*time.Second, "verified at rest", func() (bool, string) {
		text := succeed(t, "verify", "broken")
		return !strings.Contains(text, "not at rest"), text
	})
	// One unit more than there is: somebody tampered with Redis.
	must(t, redis.Client().Incr(t.Context(), "doorbuster:{broken}:stock:A").Err())
	code, stdout, _ := command(t, append([]string{"verify", "broken"}, backends...)...)
	if code != exitNo {
		t.Errorf("exit code %d", code)
	}
	contains(t, "verify", stdout, "VIOLATED", "3 of A are left in Redis, 2 in the books")
	if code, _, _ := command(t, "verify", "broken"); code != exitNo {
		t.Errorf("over the API: exit code %d", code)
	}
}

func TestTwoDevsDoNotShareAFolder(t *testing.T) {
	data := t.TempDir()
	openShop(t, "--data="+data)
	code, _, stderr := command(t, "dev", "--listen=127.0.0.1:0", "--data="+data)
	if code != exitFailed || !strings.Contains(stderr, "another process uses this folder") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestDevWithoutAFolderLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := openShop(t, "--data=")
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	left, err := os.ReadDir(os.TempDir())
	must(t, err)
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), "doorbuster-") {
			t.Errorf("left behind: %s", entry.Name())
		}
	}
}

func TestDevRefusesAShortKey(t *testing.T) {
	code, _, stderr := command(t, "dev", "--listen=127.0.0.1:0", "--admin-key=short")
	if code != exitFailed || !strings.Contains(stderr, "at least 16 characters") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestDevStopsWhileItWaitsForAServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var out, err output
	code := run(ctx, []string{"dev", "--listen=127.0.0.1:0", "--nats=nats://" + harness.Addr(t)}, terminal{&out, &err})
	if code != 0 || out.String() != "" {
		t.Errorf("exit code %d: %s%s", code, &out, &err)
	}
}
