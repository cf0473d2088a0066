// Command reconciler is the reconciler: it loads sales into Redis, rebuilds what
// Redis loses, and finishes what a crash left half done.
package main

import (
	"context"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
)

func main() {
	daemon.Main("reconciler", "Loads sales into Redis and rebuilds what Redis loses.", new(config.Reconciler),
		func(c *config.Reconciler) daemon.Frame { return daemon.Frame{HTTP: c.HTTP, Log: c.Log} }, wire)
}

func wire(ctx context.Context, d *daemon.Daemon, cfg *config.Reconciler) (daemon.Role, error) {
	store, err := d.Stock(ctx, cfg.Redis)
	if err != nil {
		return nil, err
	}
	ledger, err := d.Ledger(ctx, cfg.MySQL, config.Events{On: true})
	if err != nil {
		return nil, err
	}
	stream, err := d.Stream(ctx, cfg.NATS, nil)
	if err != nil {
		return nil, err
	}
	return reconcile.NewService(reconcile.ServiceConfig{
		Tuning: cfg.Reconcile, Ledger: ledger, Stock: store, Stream: stream, Registry: d.Registry, Log: d.Log,
	})
}
