package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// slow is a role of two routes, of which the second one is there when the test says so.
type slow struct {
	half, rest chan struct{} // the first route is there; the second one may be
}

func (a slow) Mount(r *web.Router) {
	r.HandleFunc("GET /first", func(w http.ResponseWriter, _ *http.Request) { web.Write(w, http.StatusOK, 1) })
	close(a.half)
	<-a.rest
	r.HandleFunc("POST /second", func(w http.ResponseWriter, _ *http.Request) { web.Write(w, http.StatusOK, 2) })
}

func (a slow) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func TestWhoComesWhileADaemonStartsIsToldToComeAgain(t *testing.T) {
	for _, fast := range []bool{false, true} {
		comesWhileItStarts(t, fast)
	}
}

func comesWhileItStarts(t *testing.T, fast bool) {
	t.Helper()
	role := slow{half: make(chan struct{}), rest: make(chan struct{})}
	there := make(chan struct{})
	s := open(t, fast, func(context.Context) ([]daemon.Role, error) {
		<-there
		return []daemon.Role{role}, nil
	})
	requireStarting := func(when string) {
		t.Helper()
		for _, route := range [][2]string{{"GET", "/first"}, {"POST", "/second"}, {"GET", "/"}, {"DELETE", "/none/at/all"}} {
			status, header, body := s.ask(t, route[0], route[1])
			var problem struct {
				Code   string `json:"code"`
				Detail string `json:"detail"`
			}
			if err := json.Unmarshal([]byte(body), &problem); err != nil {
				t.Errorf("%s: %v: %s", when, err, body)
			}
			if status != http.StatusServiceUnavailable || problem.Code != "unavailable" || !strings.HasPrefix(problem.Detail, "the service is starting") ||
				header.Get("Retry-After") != "1" || header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %v is answered %d %v %s", when, route, status, header, body)
			}
		}
		for _, path := range []string{"/healthz", "/metrics"} {
			if status, body := s.get(t, path); status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", when, path, status, body)
			}
		}
		if status, body := s.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"status":"not_ready"`) {
			t.Errorf("%s: readyz: %d %s", when, status, body)
		}
	}
	requireStarting("while it waits")
	close(there)
	<-role.half
	requireStarting("with half of the routes")
	close(role.rest)
	s.awaitReady(t)
	for route, want := range map[[2]string]int{
		{"GET", "/first"}: http.StatusOK, {"POST", "/second"}: http.StatusOK,
		{"GET", "/second"}: http.StatusMethodNotAllowed, {"GET", "/"}: http.StatusNotFound,
	} {
		if status, _, body := s.ask(t, route[0], route[1]); status != want {
			t.Errorf("once it is ready: %v is answered %d %s, want %d", route, status, body, want)
		}
	}
}

// logbook counts the log lines by their messages.
type logbook struct {
	slog.Handler
	mu    sync.Mutex
	lines map[string]int
}

func newLogbook() *logbook { return &logbook{Handler: slog.DiscardHandler, lines: map[string]int{}} }

func (*logbook) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[r.Message]++
	return nil
}

func (l *logbook) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[message]
}

func TestTheLogSaysOnceThatADaemonIsReady(t *testing.T) {
	log := newLogbook()
	var away atomic.Bool
	away.Store(true)
	looks := make(chan struct{}, 100)
	a := actor{end: make(chan error, 1)}
	s := openWith(t, false, func(d *daemon.Daemon) {
		d.Log = slog.New(log)
		d.Health.Add("backend", func(context.Context) error {
			looks <- struct{}{}
			if away.Load() {
				return errors.New("away")
			}
			return nil
		})
	}, these(a))
	for range 3 { // nobody asks for /readyz: it looks by itself
		<-looks
	}
	if n := log.count("ready"); n != 0 {
		t.Errorf("%d lines say that it is ready while its backend is away", n)
	}
	away.Store(false)
	harness.Eventually(t, 5*time.Second, "the log says that it is ready", func() (bool, string) { return log.count("ready") == 1, "" })
	if status, body := s.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("the log says that it is ready, and readyz says %d %s", status, body)
	}
	away.Store(true)
	harness.Eventually(t, 5*time.Second, "it is not ready any more", func() (bool, string) {
		status, body := s.get(t, "/readyz")
		return status == http.StatusServiceUnavailable, body
	})
	away.Store(false)
	s.awaitReady(t)
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := log.count("ready"); n != 1 {
		t.Errorf("%d lines say that it is ready, want 1", n)
	}
}
