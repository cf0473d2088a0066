package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/web"
	"golang.org/x/sync/errgroup"
)

// Service is the admin role: the API, the publisher, and a grab engine that
// takes stock away in line with the grabs.
type Service struct {
	api       *API
	publisher *publisher
	engine    *grab.Engine
	watch     *stream.SaleWatch
}

// ServiceConfig is what a Service is made of. All but the bounds in Config are required.
type ServiceConfig struct {
	Config          Config
	PublishDeadline time.Duration // of the engine; see grab.Config
	Ledger          *ledger.Ledger
	Stock           *stock.Store
	Stream          *stream.Stream
	Log             *slog.Logger
}

// NewService returns a Service that has not begun.
func NewService(cfg ServiceConfig) (*Service, error) {
	engine, err := grab.New(grab.Config{Process: grab.NewProcess(), PublishDeadline: cfg.PublishDeadline},
		cfg.Stock, cfg.Stream, nil, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("admin service: %w", err)
	}
	givebacks := reconcile.NewGivebacks(cfg.Stock, cfg.Ledger, cfg.Stream)
	// It verifies, and changes stock from and to unlimited; other runs are the reconciler services'.
	reconciler, err := reconcile.New(reconcile.Config{}, cfg.Stock, cfg.Stream, cfg.Ledger, nil, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("admin service: %w", err)
	}
	api, err := New(cfg.Config, Parts{
		Ledger: cfg.Ledger, Stock: cfg.Stock, Stream: cfg.Stream, Engine: engine, Givebacks: givebacks,
		DeadLetters: order.NewDeadLetters(cfg.Ledger, givebacks, cfg.Log), Verifier: reconciler, Restocker: reconciler, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s := &Service{api: api, engine: engine}
	watched := &revisions{bySale: make(map[string]int64)}
	s.watch = cfg.Stream.WatchSales(func(def *sale.Sale, deletedID string) {
		if def == nil {
			engine.Forget(deletedID)
		} else {
			engine.Put(def)
		}
		watched.take(def, deletedID)
	})
	s.publisher = &publisher{
		ledger: cfg.Ledger, stream: cfg.Stream, watched: watched, interval: api.cfg.PublishInterval, log: cfg.Log,
	}
	return s, nil
}

var errCatalogue = errors.New("the sale catalogue has not been read yet")

// Ready returns nil once the catalogue has been read and the engine runs.
func (s *Service) Ready(context.Context) error {
	select {
	case <-s.watch.Ready():
	default:
		return errCatalogue
	}
	if !s.engine.Ready() {
		return grab.ErrStopped
	}
	return nil
}

// Mount registers the service's routes.
func (s *Service) Mount(router *web.Router) { s.api.Mount(router) }

// Run publishes and takes stock until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.watch.Run(ctx); return nil })
	group.Go(func() error { return s.engine.Run(ctx) })
	group.Go(func() error {
		select {
		case <-s.watch.Ready():
			s.publisher.run(ctx)
		case <-ctx.Done():
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("admin service: %w", err)
	}
	return nil
}
