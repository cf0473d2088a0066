package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Bounds of a connection. writeTimeout is longer than the longest poll.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 60 * time.Second
	writeTimeout      = 90 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Server serves one address until its context ends.
type Server struct {
	Addr            string        // host:port; port 0 takes a free one
	Handler         http.Handler  // usually a Router
	ShutdownTimeout time.Duration // for requests in flight when the context ends
	Log             *slog.Logger  // for what the HTTP server itself complains about; nil is slog.Default

	// Fast serves by fasthttp instead of net/http, which costs less CPU a request. It is for handlers
	// that answer at once and in one piece: nothing can be flushed early, and the context of a
	// request does not end when its client goes away.
	Fast bool

	// OnListen, if set, is called with the bound address before the first request is served.
	OnListen func(net.Addr)
}

// Run listens and serves until ctx ends, then stops: no new connections, requests
// in flight get ShutdownTimeout to end, and what is left is cut off, which is an
// error. It returns nil after a clean stop.
func (s *Server) Run(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	draining := make(chan struct{})
	// Requests in flight outlive ctx: a grab that is half done must be finished.
	base, cut := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), drainingKey{}, (<-chan struct{})(draining)))
	defer cut()
	log := s.Log
	if log == nil {
		log = slog.Default()
	}
	server := s.engine(base, log)
	if s.OnListen != nil {
		s.OnListen(listener.Addr())
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	close(draining)
	return s.stop(server, listener, failed)
}

// engine is what speaks HTTP; *http.Server says what its methods do.
type engine interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

func (s *Server) engine(base context.Context, log *slog.Logger) engine {
	if s.Fast {
		return newFastServer(base, s.Handler, log)
	}
	return &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
}

func (s *Server) stop(server engine, listener net.Listener, failed <-chan error) error {
	deadline, cancel := context.WithTimeout(context.Background(), s.ShutdownTimeout)
	defer cancel()
	err := server.Shutdown(deadline)
	_ = listener.Close() // for a server that had not begun to serve it; others have closed it
	if err != nil {
		err = fmt.Errorf("shut down: requests were cut off after %s: %w", s.ShutdownTimeout, errors.Join(err, server.Close()))
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) { // Serve has returned: nothing is left running
		err = errors.Join(err, served)
	}
	return err
}

// drainingKey is the context key of Draining.
type drainingKey struct{}

// Draining returns a channel that is closed when the server that serves the
// request begins to stop. Handlers that wait, wait for it too; the request's own
// context ends only when its client goes away or the time to shut down is over.
// Outside of a Server's requests the channel is nil.
func Draining(ctx context.Context) <-chan struct{} {
	draining, _ := ctx.Value(drainingKey{}).(<-chan struct{})
	return draining
}

// OperatorHandler serves metrics and pprof, for a listener that only operators reach.
func OperatorHandler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
