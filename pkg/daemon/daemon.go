// Package daemon is the frame of a service process: it serves the routes of its
// roles on one address, tells the truth about their dependencies, and stops in
// an order in which nothing is lost: first no new requests, then the roles.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Role is a part of the product that a process can play.
type Role interface {
	// Mount registers the role's routes.
	Mount(*web.Router)
	// Run plays the role until ctx ends, and returns when all its work is done.
	Run(ctx context.Context) error
}

// Frame is how a daemon serves and logs, whatever its roles are.
type Frame struct {
	HTTP config.HTTP
	Log  config.Log
	// Fast is web.Server.Fast, for roles whose every handler answers at once and in one piece.
	Fast bool
}

// Daemon is a process before it runs: what its roles need to be made.
type Daemon struct {
	Name     string
	HTTP     config.HTTP
	Log      *slog.Logger
	Registry *prometheus.Registry
	Health   *telemetry.Health
	// OnListen, if set, is called with the bound address.
	OnListen func(net.Addr)

	fast    bool
	closers []func()
}

// New returns a daemon with its log, its metrics and its health.
func New(name string, frame Frame) (*Daemon, error) {
	logger, err := telemetry.SetupLog(name, frame.Log.Level, frame.Log.Format)
	if err != nil {
		return nil, fmt.Errorf("set up the log: %w", err)
	}
	return &Daemon{
		Name: name, HTTP: frame.HTTP, Log: logger, fast: frame.Fast,
		Registry: telemetry.NewRegistry(), Health: telemetry.NewHealth(),
	}, nil
}

// SignalContext ends with SIGINT or SIGTERM.
func SignalContext() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// OnClose has fn called by Close, the last one first.
func (d *Daemon) OnClose(fn func()) { d.closers = append(d.closers, fn) }

// Close closes what was opened for the daemon.
func (d *Daemon) Close() {
	for _, fn := range slices.Backward(d.closers) {
		fn()
	}
	d.closers = nil
}

// Run serves the roles until ctx ends or one of them fails. When ctx ends, the
// daemon leaves /readyz and goes on for the drain delay. Then the requests in
// flight end, within the shutdown timeout; then the roles are stopped and waited for.
func (d *Daemon) Run(ctx context.Context, roles ...Role) error {
	return d.Serve(ctx, func(context.Context) ([]Role, error) { return roles, nil })
}

// errStarting is why a daemon is not ready while its roles are being made.
var errStarting = errors.New("still waiting for the dependencies that are not ok here, or the log says for what")

// Serve is Run for roles that take time to make: while wire waits for the servers
// that the roles need, it answers health probes, and everything else with 503.
func (d *Daemon) Serve(ctx context.Context, wire func(context.Context) ([]Role, error)) error {
	front := newFront(d)
	d.Health.Add("start", func(context.Context) error {
		if !front.isOpen() {
			return errStarting
		}
		return nil
	})
	listening, closeDoors := context.WithCancel(context.WithoutCancel(ctx))
	defer closeDoors()
	wiring, giveUp := context.WithCancel(ctx)
	defer giveUp()
	playing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, serving := errgroup.WithContext(listening)
	played, playing := errgroup.WithContext(playing)
	played.Go(func() error {
		roles, err := wire(wiring)
		if err != nil {
			if wiring.Err() != nil {
				return nil //nolint:nilerr // stopped while it waited
			}
			return err
		}
		for _, role := range roles {
			played.Go(func() error { return play(playing, role) })
		}
		front.open(roles)
		return nil
	})
	group.Go(func() error {
		// When a role ends, so does the process.
		select {
		case <-playing.Done():
			return context.Cause(playing)
		case <-serving.Done():
			return nil
		}
	})
	group.Go(func() error {
		d.leave(ctx, serving, front)
		closeDoors()
		return nil
	})
	group.Go(func() error { d.tellReady(serving, front); return nil })
	group.Go(func() error {
		server := d.server(d.HTTP.Listen, front, d.OnListen)
		server.Fast = d.fast
		return server.Run(serving)
	})
	if d.HTTP.AdminListen != "" {
		metrics := web.OperatorHandler(telemetry.MetricsHandler(d.Registry))
		group.Go(func() error { return d.server(d.HTTP.AdminListen, metrics, nil).Run(serving) })
	}
	failed := group.Wait()
	giveUp() // who can't serve must not wait for what it would serve with
	stop()
	ended := played.Wait()
	if ctx.Err() != nil {
		d.Log.Info("stopped")
		return failed
	}
	return errors.Join(failed, ended)
}

// leave waits until the daemon shall stop, and leaves /readyz. Who is stopped from
// outside then gives balancers the drain delay to notice; who has failed, or has not
// begun, is of no use to them.
func (d *Daemon) leave(ctx, serving context.Context, front *front) {
	select {
	case <-ctx.Done():
	case <-serving.Done():
	}
	d.Health.Drain()
	if front.isOpen() {
		backoff.Pause(serving, d.HTTP.DrainDelay)
	}
}

// Delays between two looks whether the daemon is ready, see backoff.Delay.
const (
	readyLookBase = 100 * time.Millisecond
	readyLookMax  = time.Second
)

// tellReady logs once that the daemon is ready, when it first is.
func (d *Daemon) tellReady(ctx context.Context, front *front) {
	select {
	case <-front.opened:
	case <-ctx.Done():
		return
	}
	for attempt := 1; ; attempt++ {
		if ready, _ := d.Health.Ready(ctx); ready {
			d.Log.Info("ready")
			return
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, readyLookBase, readyLookMax)) {
			return
		}
	}
}

// play runs a role, for which ending by itself is a failure.
func play(ctx context.Context, role Role) error {
	err := role.Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errors.New("a role ended by itself")
	}
	return err
}

func (d *Daemon) server(addr string, handler http.Handler, onListen func(net.Addr)) *web.Server {
	return &web.Server{
		Addr: addr, Handler: handler, ShutdownTimeout: d.HTTP.ShutdownTimeout, Log: d.Log,
		OnListen: func(bound net.Addr) {
			d.Log.Info("listening", "address", bound.String())
			if onListen != nil {
				onListen(bound)
			}
		},
	}
}
