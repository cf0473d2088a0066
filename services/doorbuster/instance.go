package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/embedded"
	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// instance is a whole Doorbuster in this process: every role on one address.
type instance struct {
	daemon   *daemon.Daemon
	cfg      config.Dev
	key      string          // of the admin API
	embedded []string        // the backends that run in this process
	redis    *embedded.Redis // nil when one was given

	stock  *stock.Store
	stream *stream.Stream
	ledger *ledger.Ledger
	grab   *grab.Service
	admin  *admin.Service
	roles  []daemon.Role
}

// newInstance starts the embedded backends that are needed, opens all of them,
// and makes the roles. The daemon's Close ends what was opened, also after an error.
func newInstance(ctx context.Context, d *daemon.Daemon, cfg config.Dev) (*instance, error) {
	key, err := adminKey(cfg.AdminKey)
	if err != nil {
		return nil, err
	}
	i := &instance{daemon: d, cfg: cfg, key: key}
	if err := i.openBackends(ctx); err != nil {
		return nil, err
	}
	if err := i.makeRoles(ctx); err != nil {
		return nil, err
	}
	return i, nil
}

func (i *instance) openBackends(ctx context.Context) error {
	folder, err := embedded.OpenFolder(i.cfg.Data)
	if err != nil {
		return err
	}
	i.daemon.OnClose(func() {
		if err := folder.Close(); err != nil {
			i.daemon.Log.Warn("data folder not given up cleanly", "error", err)
		}
	})
	if err := i.openStock(ctx); err != nil {
		return err
	}
	if err := i.openStream(ctx, folder); err != nil {
		return err
	}
	if i.cfg.MySQL.Given() {
		i.ledger, err = i.daemon.Ledger(ctx, i.cfg.MySQL, i.cfg.Events)
		return err
	}
	i.embedded = append(i.embedded, "mysql")
	i.ledger, err = i.daemon.LedgerFile(ctx, folder.Ledger(), i.cfg.Events)
	return err
}

func (i *instance) openStock(ctx context.Context) error {
	where := i.cfg.Redis
	if !where.Given() {
		server, err := embedded.StartRedis()
		if err != nil {
			return err
		}
		i.daemon.OnClose(server.Close)
		i.redis, where.URL = server, server.URL()
		i.embedded = append(i.embedded, "redis")
	}
	var err error
	i.stock, err = i.daemon.Stock(ctx, where)
	return err
}

func (i *instance) openStream(ctx context.Context, folder *embedded.Folder) error {
	where := i.cfg.NATS
	if !where.Given() {
		server, err := embedded.StartNATS(folder, i.daemon.Log)
		if err != nil {
			return err
		}
		i.daemon.OnClose(server.Close)
		where.URL = server.URL()
		i.embedded = append(i.embedded, "nats")
	}
	var err error
	i.stream, err = i.daemon.Stream(ctx, where, func(c *stream.Config) {
		c.AckWait, c.EventsMaxAge = i.cfg.Order.AckWait, i.cfg.EventLog.MaxAge
	})
	return err
}

func (i *instance) makeRoles(ctx context.Context) error {
	identity, err := i.daemon.Identity(ctx, config.Identity{TrustUserHeader: true})
	if err != nil {
		return err
	}
	registry, log := i.daemon.Registry, i.daemon.Log
	front := i.cfg.Front
	front.GatewayKeys = append(slices.Clone(front.GatewayKeys), i.key) // one key opens everything in development
	i.grab, err = grab.NewService(grab.ServiceConfig{
		Tuning: i.cfg.Grab, Front: front, Quotas: i.cfg.Quotas, PublishDeadline: i.cfg.NATS.PublishTimeout,
		Stock: i.stock, Stream: i.stream, Identity: identity,
		Metrics: telemetry.NewGrabMetrics(registry, sale.OutcomeNames()), Log: log,
	})
	if err != nil {
		return err
	}
	orders, err := order.NewService(order.ServiceConfig{
		Tuning: i.cfg.Order, Gateways: config.Gateways{Keys: front.GatewayKeys}, Ledger: i.ledger, Stock: i.stock, Stream: i.stream, Identity: identity,
		Givebacks: reconcile.NewGivebacks(i.stock, i.ledger, i.stream),
		Metrics:   telemetry.NewOrderMetrics(registry, order.Tables, order.RetryReasons),
		Expiry:    telemetry.NewExpiryMetrics(registry, order.ExpiryReasons),
		Events:    telemetry.NewEventMetrics(registry, sale.EventKindNames()),
		Webhooks:  i.cfg.Webhooks, Calls: telemetry.NewWebhookMetrics(registry, fulfil.Results, fulfil.Ends), Log: log,
	})
	if err != nil {
		return err
	}
	reconciler, err := reconcile.NewService(reconcile.ServiceConfig{
		Tuning: i.cfg.Reconcile, Ledger: i.ledger, Stock: i.stock, Stream: i.stream, Registry: registry, Log: log,
	})
	if err != nil {
		return err
	}
	i.admin, err = admin.NewService(admin.ServiceConfig{
		Config: admin.Config{Callers: i.cfg.AdminKeys.Callers(i.key)}, PublishDeadline: i.cfg.NATS.PublishTimeout,
		Ledger: i.ledger, Stock: i.stock, Stream: i.stream, Log: log,
	})
	if err != nil {
		return err
	}
	i.daemon.Health.Add("catalogue", i.grab.Ready)
	i.roles = []daemon.Role{i.grab, orders, reconciler, i.admin}
	return nil
}

// readyPoll is the pause between two looks whether the roles have begun.
const readyPoll = 10 * time.Millisecond

// run serves until ctx ends. announce is called once, with the address
// "http://host:port", when everything is ready.
func (i *instance) run(ctx context.Context, announce func(address string)) error {
	listening := make(chan net.Addr, 1)
	i.daemon.OnListen = func(a net.Addr) { listening <- a }
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var announcing sync.WaitGroup
	announcing.Go(func() {
		select {
		case at := <-listening:
			if i.awaitReady(ctx) {
				announce("http://" + at.String())
			}
		case <-ctx.Done():
		}
	})
	err := i.daemon.Run(ctx, i.roles...)
	stop()
	announcing.Wait()
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// awaitReady reports whether everything became ready before ctx ended.
func (i *instance) awaitReady(ctx context.Context) bool {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if i.grab.Ready(ctx) == nil && i.admin.Ready(ctx) == nil {
			// Only now: a result of the health checks is kept for a while.
			if ready, _ := i.daemon.Health.Ready(ctx); ready {
				return ctx.Err() == nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
