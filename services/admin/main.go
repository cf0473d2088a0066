// Command admin is the admin service: it creates sales, moves them through
// their lives, and shows the books.
package main

import (
	"context"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
)

func main() {
	daemon.Main("admin", "Creates sales, moves them through their lives, and shows the books.", new(config.Admin),
		func(c *config.Admin) daemon.Frame { return daemon.Frame{HTTP: c.HTTP, Log: c.Log} }, wire)
}

func wire(ctx context.Context, d *daemon.Daemon, cfg *config.Admin) (daemon.Role, error) {
	store, err := d.OptionalStock(ctx, cfg.Redis)
	if err != nil {
		return nil, err
	}
	ledger, err := d.Ledger(ctx, cfg.MySQL, cfg.Events)
	if err != nil {
		return nil, err
	}
	stream, err := d.Stream(ctx, cfg.NATS, nil)
	if err != nil {
		return nil, err
	}
	service, err := admin.NewService(admin.ServiceConfig{
		Config: admin.Config{Callers: cfg.AdminKeys.Callers(cfg.AdminKey.Key)}, PublishDeadline: cfg.NATS.PublishTimeout,
		Ledger: ledger, Stock: store, Stream: stream, Log: d.Log,
	})
	if err != nil {
		return nil, err
	}
	d.Health.Add("catalogue", service.Ready)
	return service, nil
}
