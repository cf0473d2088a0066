package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"golang.org/x/sync/errgroup"
)

// Service is the order role: the worker, the HTTP for the owners of orders, and the
// end of those that are not paid.
type Service struct {
	api     *API
	quotas  *Quotas
	worker  *Worker
	expiry  *Expiry
	lag     *Lag
	catch   *CatchUp
	tell    *Publisher
	sender  *fulfil.Sender
	backlog *fulfil.Backlog
}

// AllGivebacks gives stock back in Redis, one decision at a time or many.
type AllGivebacks interface {
	Givebacks
	ManyGivebacks
}

// ServiceConfig is what a Service is made of.
type ServiceConfig struct {
	Tuning    config.OrderTuning
	Gateways  config.Gateways
	Ledger    *ledger.Ledger
	Stock     *stock.Store
	Stream    *stream.Stream
	Givebacks AllGivebacks
	Identity  web.Identity
	Metrics   *telemetry.OrderMetrics
	Expiry    *telemetry.ExpiryMetrics
	Events    *telemetry.EventMetrics
	Webhooks  config.Webhooks
	Calls     *telemetry.WebhookMetrics
	Log       *slog.Logger
}

// NewService returns a Service that has not begun. The stream must have been
// opened with Tuning.AckWait.
func NewService(cfg ServiceConfig) (*Service, error) {
	if cfg.Givebacks == nil {
		return nil, errors.New("order service: Givebacks is required")
	}
	api, err := NewAPI(APIConfig{WaitMax: cfg.Tuning.WaitMax, WaitersMax: cfg.Tuning.WaitersMax, WatchMax: cfg.Tuning.WatchMax, Waiting: cfg.Metrics.Waiting},
		cfg.Identity, cfg.Ledger, cfg.Stock, cfg.Givebacks, cfg.Log)
	if err != nil {
		return nil, err
	}
	worker, err := NewWorker(WorkerConfig{
		Loops: cfg.Tuning.Workers, FetchMax: cfg.Tuning.FetchMax, GrantsPerTx: cfg.Tuning.GrantsPerTx,
		MaxDeliveries: cfg.Tuning.MaxDeliverAttempts, RetryBase: cfg.Tuning.RetryBase, RetryMax: cfg.Tuning.RetryMax,
		AckWait: cfg.Tuning.AckWait,
	}, cfg.Ledger, cfg.Stream, api.Changed, cfg.Metrics, cfg.Log)
	if err != nil {
		return nil, err
	}
	expiry, err := NewExpiry(ExpiryConfig{Interval: cfg.Tuning.ExpiryInterval, Batch: cfg.Tuning.ExpiryBatch},
		cfg.Ledger, cfg.Givebacks, api.Changed, cfg.Expiry, cfg.Log)
	if err != nil {
		return nil, err
	}
	tell, err := NewPublisher(PublisherConfig{}, cfg.Ledger, cfg.Stream, cfg.Events, cfg.Log)
	if err != nil {
		return nil, err
	}
	sender, err := newSender(&cfg, api.Changed)
	if err != nil {
		return nil, err
	}
	return &Service{
		api: api, quotas: NewQuotas(api, cfg.Ledger, cfg.Gateways.Keys), worker: worker, expiry: expiry, lag: NewLag(cfg.Ledger, cfg.Stream, cfg.Metrics.StreamLag),
		catch: NewCatchUp(0, cfg.Ledger, cfg.Stream, cfg.Metrics.Rewinds, cfg.Log), tell: tell, sender: sender,
		backlog: fulfil.NewBacklog(cfg.Ledger, cfg.Calls.Waiting, cfg.Calls.Parked),
	}, nil
}

func newSender(cfg *ServiceConfig, changed func(orderID string)) (*fulfil.Sender, error) {
	keys, err := cfg.Webhooks.Keys()
	if err != nil {
		return nil, err
	}
	return fulfil.New(fulfil.Config{
		Keys: keys, Workers: cfg.Webhooks.Workers, PerHost: cfg.Webhooks.PerHost, Timeout: cfg.Webhooks.Timeout,
		SlowAfter: cfg.Webhooks.SlowAfter, RetryBase: cfg.Webhooks.RetryBase, RetryMax: cfg.Webhooks.RetryMax,
	}, fulfil.Parts{Ledger: cfg.Ledger, Givebacks: cfg.Givebacks, Metrics: cfg.Calls, Log: cfg.Log, Changed: changed})
}

// Mount registers the service's routes.
func (s *Service) Mount(router *web.Router) {
	s.api.Mount(router)
	s.quotas.Mount(router)
}

// Run writes and expires orders until ctx ends and what is in hand is written.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.worker.Run(ctx) })
	group.Go(func() error { return s.expiry.Run(ctx) })
	group.Go(func() error { return s.lag.Run(ctx) })
	group.Go(func() error { return s.catch.Run(ctx) })
	group.Go(func() error { return s.tell.Run(ctx) })
	group.Go(func() error { return s.sender.Run(ctx) })
	group.Go(func() error { return s.backlog.Run(ctx) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("order service: %w", err)
	}
	return nil
}
