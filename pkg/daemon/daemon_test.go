package daemon_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/web"
)

func TestMain(m *testing.M) { harness.Main(m) }

// actor is a role whose end the test decides.
type actor struct {
	end chan error
}

func (a actor) Mount(r *web.Router) {
	r.HandleFunc("GET /act", func(w http.ResponseWriter, _ *http.Request) { web.Write(w, http.StatusOK, "acting") })
}

func (a actor) Run(ctx context.Context) error {
	select {
	case err := <-a.end:
		return err
	case <-ctx.Done():
		return nil
	}
}

// stage is a daemon that runs.
type stage struct {
	url   string
	stop  context.CancelFunc
	ended chan error
}

func newDaemon(t *testing.T, address string, fast bool) *daemon.Daemon {
	t.Helper()
	d, err := daemon.New("test", daemon.Frame{
		HTTP: config.HTTP{Listen: address, ShutdownTimeout: time.Second}, Log: config.Log{Level: "error", Format: "text"}, Fast: fast,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open runs a daemon with these roles.
func open(t *testing.T, fast bool, wire func(context.Context) ([]daemon.Role, error)) stage {
	t.Helper()
	return openWith(t, fast, func(*daemon.Daemon) {}, wire)
}

// openWith runs a daemon that prepare has changed.
func openWith(t *testing.T, fast bool, prepare func(*daemon.Daemon), wire func(context.Context) ([]daemon.Role, error)) stage {
	t.Helper()
	d := newDaemon(t, "127.0.0.1:0", fast)
	prepare(d)
	listening := make(chan net.Addr, 1)
	d.OnListen = func(a net.Addr) { listening <- a }
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	s := stage{stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- d.Serve(ctx, wire) }()
	s.url = "http://" + (<-listening).String()
	return s
}

// these are roles that are there at once.
func these(roles ...daemon.Role) func(context.Context) ([]daemon.Role, error) {
	return func(context.Context) ([]daemon.Role, error) { return roles, nil }
}

func (s stage) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	status, _, body = s.ask(t, http.MethodGet, path)
	return status, body
}

// ask sends a request over a connection of its own.
func (s stage) ask(t *testing.T, method, path string) (status int, header http.Header, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

func (s stage) awaitReady(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 5*time.Second, "it is ready", func() (bool, string) {
		status, body := s.get(t, "/readyz")
		return status == http.StatusOK, body
	})
}

func TestADaemonThatWaitsIsAliveAndNotReady(t *testing.T) {
	for _, fast := range []bool{false, true} {
		waitsAliveAndNotReady(t, fast)
	}
}

func waitsAliveAndNotReady(t *testing.T, fast bool) {
	t.Helper()
	there := make(chan struct{})
	s := open(t, fast, func(ctx context.Context) ([]daemon.Role, error) {
		select {
		case <-there:
			return []daemon.Role{actor{}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	if status, body := s.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("healthz while it waits: %d %s", status, body)
	}
	if status, body := s.get(t, "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz while it waits: %d %s", status, body)
	}
	close(there)
	s.awaitReady(t)
	if status, body := s.get(t, "/act"); status != http.StatusOK {
		t.Errorf("the role's route: %d %s", status, body)
	}
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestADaemonThatIsStoppedWhileItWaitsEndsCleanly(t *testing.T) {
	s := open(t, false, func(ctx context.Context) ([]daemon.Role, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Else nothing would tell why it does not answer.
func TestADaemonThatCannotListenFailsAlsoWhileItWaits(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	d := newDaemon(t, taken.Addr().String(), false)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() {
		ended <- d.Serve(ctx, func(ctx context.Context) ([]daemon.Role, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("it ended with %v, want %v", err, syscall.EADDRINUSE)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still waits")
	}
}

func TestADaemonEndsWithItsRole(t *testing.T) {
	broken := errors.New("broken")
	for _, how := range []error{broken, nil} {
		a := actor{end: make(chan error, 1)}
		s := open(t, false, these(a))
		a.end <- how
		if err := <-s.ended; err == nil || (how != nil && !errors.Is(err, how)) {
			t.Errorf("a role that ended with %v ended the daemon with %v", how, err)
		}
	}
}

func TestADaemonThatCannotBeWiredFails(t *testing.T) {
	broken := errors.New("broken")
	s := open(t, false, func(context.Context) ([]daemon.Role, error) { return nil, broken })
	if err := <-s.ended; !errors.Is(err, broken) {
		t.Errorf("it ended with %v, want %v", err, broken)
	}
}
