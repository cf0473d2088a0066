package daemon_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/harness"
)

func drainFor(delay time.Duration) func(*daemon.Daemon) {
	return func(d *daemon.Daemon) { d.HTTP.DrainDelay = delay }
}

// requireDraining waits until a balancer is told to send requests elsewhere.
func (s stage) requireDraining(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 5*time.Second, "it has left readyz", func() (bool, string) {
		status, body := s.get(t, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, `"status":"draining"`), body
	})
}

func TestADaemonServesBetweenLeavingReadyzAndClosing(t *testing.T) {
	for _, fast := range []bool{false, true} {
		servesWhileItDrains(t, fast)
	}
}

func servesWhileItDrains(t *testing.T, fast bool) {
	t.Helper()
	broken := errors.New("broken")
	a := actor{end: make(chan error, 1)}
	s := openWith(t, fast, drainFor(time.Hour), these(a))
	s.awaitReady(t)
	s.stop()
	s.requireDraining(t)
	for range 3 { // each over a new connection
		if status, body := s.get(t, "/act"); status != http.StatusOK {
			t.Errorf("the role's route: %d %s", status, body)
		}
	}
	if status, body := s.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, body)
	}
	a.end <- broken // without its role it is of no use for the rest of the hour
	if err := <-s.ended; !errors.Is(err, broken) {
		t.Errorf("it ended with %v, want %v", err, broken)
	}
}

func TestADaemonClosesWhenTheDrainDelayIsOver(t *testing.T) {
	const delay = 300 * time.Millisecond
	s := openWith(t, false, drainFor(delay), these(actor{}))
	s.awaitReady(t)
	begin := time.Now()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(begin); took < delay {
		t.Errorf("it ended after %s, want %s at least", took, delay)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://")); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestADaemonThatHasNotBegunOrHasFailedDoesNotDrain(t *testing.T) {
	waiting := openWith(t, false, drainFor(time.Hour), func(ctx context.Context) ([]daemon.Role, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	waiting.stop()
	if err := <-waiting.ended; err != nil {
		t.Errorf("one that waits ended with %v", err)
	}
	broken := errors.New("broken")
	a := actor{end: make(chan error, 1)}
	failed := openWith(t, false, drainFor(time.Hour), these(a))
	failed.awaitReady(t)
	a.end <- broken
	if err := <-failed.ended; !errors.Is(err, broken) {
		t.Errorf("one whose role failed ended with %v, want %v", err, broken)
	}
}
