// Command order is the order service: it turns grants into orders and answers
// their owners.
package main

import (
	"context"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

func main() {
	daemon.Main("order", "Turns grants into orders and answers their owners.", new(config.Order),
		func(c *config.Order) daemon.Frame { return daemon.Frame{HTTP: c.HTTP, Log: c.Log} }, wire)
}

func wire(ctx context.Context, d *daemon.Daemon, cfg *config.Order) (daemon.Role, error) {
	identity, err := d.Identity(ctx, cfg.Identity)
	if err != nil {
		return nil, err
	}
	store, err := d.OptionalStock(ctx, cfg.Redis)
	if err != nil {
		return nil, err
	}
	l, err := d.Ledger(ctx, cfg.MySQL, cfg.Events)
	if err != nil {
		return nil, err
	}
	s, err := d.Stream(ctx, cfg.NATS, func(c *stream.Config) {
		c.AckWait, c.EventsMaxAge = cfg.Order.AckWait, cfg.EventLog.MaxAge
	})
	if err != nil {
		return nil, err
	}
	return order.NewService(order.ServiceConfig{
		Tuning: cfg.Order, Gateways: cfg.Gateways, Ledger: l, Stock: store, Stream: s, Identity: identity,
		Givebacks: reconcile.NewGivebacks(store, l, s),
		Metrics:   telemetry.NewOrderMetrics(d.Registry, order.Tables, order.RetryReasons),
		Expiry:    telemetry.NewExpiryMetrics(d.Registry, order.ExpiryReasons),
		Events:    telemetry.NewEventMetrics(d.Registry, sale.EventKindNames()),
		Webhooks:  cfg.Webhooks, Calls: telemetry.NewWebhookMetrics(d.Registry, fulfil.Results, fulfil.Ends), Log: d.Log,
	})
}
