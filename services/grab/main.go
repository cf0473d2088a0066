// Command grab is the grab service: it decides who gets what.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

func main() {
	var cfg config.Grab
	config.MustParse("grab", "Decides who gets what.", &cfg)
	if err := run(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "grab:", err)
		os.Exit(1)
	}
}

func run(cfg config.Grab) error {
	ctx, stop := daemon.SignalContext()
	defer stop()
	d, err := daemon.New("grab", cfg.HTTP, cfg.Log)
	if err != nil {
		return err
	}
	defer d.Close()
	service, err := wire(ctx, d, cfg)
	if err != nil {
		return err
	}
	return d.Run(ctx, service)
}

func wire(ctx context.Context, d *daemon.Daemon, cfg config.Grab) (*grab.Service, error) {
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
		Tuning: cfg.Grab, PublishDeadline: cfg.NATS.PublishTimeout,
		Stock: store, Stream: stream, Identity: identity,
		Metrics: telemetry.NewGrabMetrics(d.Registry, sale.OutcomeNames()), Log: d.Log,
	})
	if err != nil {
		return nil, err
	}
	d.Health.Add("catalogue", service.Ready)
	return service, nil
}
