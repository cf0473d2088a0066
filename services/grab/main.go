// Command grab is the grab service: it decides who gets what.
package main

import (
	"context"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

func main() {
	daemon.Main("grab", "Decides who gets what.", new(config.Grab),
		func(c *config.Grab) daemon.Frame { return daemon.Frame{HTTP: c.HTTP, Log: c.Log, Fast: true} }, wire)
}

func wire(ctx context.Context, d *daemon.Daemon, cfg *config.Grab) (daemon.Role, error) {
	identity, err := d.Identity(ctx, cfg.Identity)
	if err != nil {
		return nil, err
	}
	store, err := d.Stock(ctx, cfg.Redis)
	if err != nil {
		return nil, err
	}
	stream, err := d.Stream(ctx, cfg.NATS, nil)
	if err != nil {
		return nil, err
	}
	service, err := grab.NewService(grab.ServiceConfig{
		Tuning: cfg.Grab, Front: cfg.Front, Quotas: cfg.Quotas, PublishDeadline: cfg.NATS.PublishTimeout,
		Stock: store, Stream: stream, Identity: identity,
		Metrics: telemetry.NewGrabMetrics(d.Registry, sale.OutcomeNames()), Log: d.Log,
	})
	if err != nil {
		return nil, err
	}
	d.Health.Add("catalogue", service.Ready)
	return service, nil
}
