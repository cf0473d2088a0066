package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running is a server under test.
type running struct {
	url  string
	stop context.CancelFunc
	err  error
	done chan struct{} // closed when Run has returned err
}

// wait returns what Run returned.
func (r *running) wait() error {
	<-r.done
	return r.err
}

// start runs a server, and waits until it listens.
func start(t testing.TB, s *Server) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	bound := make(chan net.Addr, 1)
	s.Addr, s.Log = "127.0.0.1:0", discardLog()
	s.OnListen = func(addr net.Addr) { bound <- addr }
	r := &running{stop: stop, done: make(chan struct{})}
	go func() {
		r.err = s.Run(ctx)
		close(r.done)
	}()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		_ = r.wait() // each test looks at the error that it expects
	})
	select {
	case addr := <-bound:
		r.url = "http://" + addr.String()
	case <-r.done:
		t.Fatal(r.err)
	}
	return r
}

// get asks for a path and returns the status and the body.
func (r *running) get(t *testing.T, path string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// engines are what a server may speak HTTP by.
var engines = []struct {
	name string
	fast bool
}{{"net/http", false}, {"fasthttp", true}}

func onBothEngines(t *testing.T, test func(t *testing.T, fast bool)) {
	t.Helper()
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) { test(t, engine.fast) })
	}
}

func TestServerServesUntilItsContextEnds(t *testing.T) { onBothEngines(t, servesUntilItsContextEnds) }

func servesUntilItsContextEnds(t *testing.T, fast bool) {
	r := start(t, &Server{
		Fast:            fast,
		Handler:         http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }),
		ShutdownTimeout: time.Second,
	})
	if status, body, err := r.get(t, "/"); status != http.StatusOK || body != "hello" {
		t.Errorf("%d %s %v", status, body, err)
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if _, _, err := r.get(t, "/"); err == nil {
		t.Error("it still answers")
	}
}

func TestRequestsInFlightAreFinished(t *testing.T) { onBothEngines(t, finishesRequestsInFlight) }

func finishesRequestsInFlight(t *testing.T, fast bool) {
	entered, release := make(chan struct{}), make(chan struct{})
	r := start(t, &Server{
		Fast: fast,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-Draining(r.Context())
			<-release
			if r.Context().Err() != nil {
				t.Error("the request's context ended with the server's")
			}
			_, _ = io.WriteString(w, "finished")
		}),
		ShutdownTimeout: time.Minute,
	})
	type answer struct {
		body string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		_, body, err := r.get(t, "/")
		answered <- answer{body, err}
	}()
	<-entered
	r.stop()
	close(release)
	if got := <-answered; got.body != "finished" || got.err != nil {
		t.Errorf("%+v", got)
	}
	if err := r.wait(); err != nil {
		t.Errorf("stopped with %v", err)
	}
}

func TestRequestsThatTakeTooLongAreCutOff(t *testing.T) { onBothEngines(t, cutsOffWhatTakesTooLong) }

func cutsOffWhatTakesTooLong(t *testing.T, fast bool) {
	entered := make(chan struct{})
	r := start(t, &Server{
		Fast: fast,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		}),
		ShutdownTimeout: 10 * time.Millisecond,
	})
	cut := make(chan error, 1)
	go func() {
		_, _, err := r.get(t, "/")
		cut <- err
	}()
	<-entered
	r.stop()
	if err := r.wait(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cut off after 10ms") {
		t.Errorf("stopped with %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}

func TestATakenAddressIsAnError(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s := &Server{Addr: taken.Addr().String(), Handler: http.NotFoundHandler(), ShutdownTimeout: time.Second}
	if err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "listen: ") {
		t.Errorf("%v", err)
	}
}

func TestHeadersHaveALimit(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		r := start(t, &Server{Fast: fast, Handler: http.NotFoundHandler(), ShutdownTimeout: time.Second})
		for path, want := range map[string]int{
			"/?" + strings.Repeat("x", 15<<10): http.StatusNotFound,
			"/?" + strings.Repeat("x", 32<<10): http.StatusRequestHeaderFieldsTooLarge,
		} {
			if status, _, err := r.get(t, path); err != nil || status != want {
				t.Errorf("a path of %d bytes: %d, want %d, %v", len(path), status, want, err)
			}
		}
	})
}

func TestAServerThatIsStoppedAtOnceStops(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		s := &Server{
			Addr: "127.0.0.1:0", Fast: fast, Handler: http.NotFoundHandler(), ShutdownTimeout: time.Minute, Log: discardLog(),
			OnListen: func(net.Addr) { stop() }, // before it has begun to serve
		}
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestOperatorsReachMetricsAndProfiles(t *testing.T) {
	handler := OperatorHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	for path, want := range map[string]string{"/metrics": "metrics", "/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile"} {
		if w := serve(handler, newRequest(t, http.MethodGet, path, "")); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestDrainingOutsideOfAServerNeverHappens(t *testing.T) {
	if Draining(t.Context()) != nil {
		t.Error("a channel without a server")
	}
}
