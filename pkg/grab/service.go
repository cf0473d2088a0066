package grab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"golang.org/x/sync/errgroup"
)

// Service is the grab role: an engine, the catalogue it sells from, and the
// HTTP in front of it.
type Service struct {
	engine   *Engine
	stream   *stream.Stream
	identity web.Identity
	log      *slog.Logger
	metrics  *telemetry.GrabMetrics
	tuning   config.GrabTuning
	views    views
	watch    *stream.SaleWatch

	clients     *web.ClientAddress
	gatewayKeys []string
	unknown     string // what becomes of deductions from unknown quotas; see config.Quotas

	control   *stream.FlowControlWatch
	flow      atomic.Pointer[flow]
	revision  atomic.Uint64 // of the flow control in force
	users     *buckets
	addresses *buckets
}

// ServiceConfig is what a Service is made of.
type ServiceConfig struct {
	Tuning          config.GrabTuning
	Front           config.GrabFront
	Quotas          config.Quotas
	PublishDeadline time.Duration
	Stock           *stock.Store
	Stream          *stream.Stream
	Identity        web.Identity
	Metrics         *telemetry.GrabMetrics
	Log             *slog.Logger
}

// NewProcess names a process start.
func NewProcess() string { return strings.ToLower(rand.Text()[:16]) }

// NewService returns a Service that has not begun.
func NewService(cfg ServiceConfig) (*Service, error) {
	soldOutTTL := cfg.Tuning.SoldOutTTL
	if soldOutTTL == 0 {
		soldOutTTL = -1 // the setting's 0 is no mark
	}
	engine, err := New(Config{
		Process:  NewProcess(),
		BatchMax: cfg.Tuning.BatchMax, QueueMax: cfg.Tuning.QueueMax, InFlightMax: int64(cfg.Tuning.InFlightMax),
		UnackedBatches: cfg.Tuning.UnackedBatches, PublishDeadline: cfg.PublishDeadline,
		SoldOutTTL: soldOutTTL, LeaseTTL: cfg.Tuning.LeaseTTL,
		LoadWait: cfg.Quotas.LoadWait, BatcherIdle: cfg.Tuning.BatcherIdle,
	}, cfg.Stock, cfg.Stream, meter{cfg.Metrics}, cfg.Log)
	if err != nil {
		return nil, err
	}
	clients, err := clientAddress(cfg.Front)
	if err != nil {
		return nil, err
	}
	s := &Service{
		engine: engine, stream: cfg.Stream, identity: cfg.Identity, log: cfg.Log, metrics: cfg.Metrics, tuning: cfg.Tuning,
		clients: clients, gatewayKeys: cfg.Front.GatewayKeys, unknown: cfg.Quotas.Unknown, users: newBuckets(), addresses: newBuckets(),
	}
	s.watch = Follow(engine, cfg.Stream)
	s.obey(stream.FlowControl{}, 0)
	s.control = cfg.Stream.WatchFlowControl(s.obey)
	return s, nil
}

func clientAddress(front config.GrabFront) (*web.ClientAddress, error) {
	trusted, err := front.Proxies()
	if err != nil {
		return nil, err
	}
	return web.NewClientAddress(trusted, cmp.Or(front.ForwardedHeader, web.XForwardedFor))
}

// Follow returns the watch that feeds an engine's catalogue.
func Follow(e *Engine, s *stream.Stream) *stream.SaleWatch {
	return s.WatchSales(func(def *sale.Sale, deletedID string) {
		if def == nil {
			e.Forget(deletedID)
			return
		}
		e.Put(def)
	})
}

// Engine returns the service's engine.
func (s *Service) Engine() *Engine { return s.engine }

// Ready returns nil once the catalogue and the flow control have been read and the
// engine runs.
func (s *Service) Ready(context.Context) error {
	select {
	case <-s.watch.Ready():
	default:
		return errors.New("the sale catalogue has not been read yet")
	}
	select {
	case <-s.control.Ready():
	default:
		return errors.New("the flow control has not been read yet")
	}
	if !s.engine.Ready() {
		return ErrStopped
	}
	return nil
}

// Run sells until ctx ends and every grab in hand has its answer.
func (s *Service) Run(ctx context.Context) error {
	unsubscribe, err := s.stream.SubscribeRestocked(s.engine.Restocked)
	if err != nil {
		return fmt.Errorf("listen for restocks: %w", err)
	}
	defer unsubscribe()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.watch.Run(ctx); return nil })
	group.Go(func() error { s.control.Run(ctx); return nil })
	group.Go(func() error { return s.engine.Run(ctx) })
	group.Go(func() error { s.look(ctx); return nil })
	return group.Wait()
}

// lookEvery is how often the service looks after itself.
const lookEvery = 100 * time.Millisecond

// look drops the sold-out marks when the connection to the stream was gone (a signal
// that stock came back may have been missed), and measures the grabs in flight.
func (s *Service) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !s.stream.Reachable() {
				s.engine.RestockedAll()
			}
			s.metrics.InFlight.Set(float64(s.engine.inFlight.Load()))
		case <-ctx.Done():
			return
		}
	}
}

// meter counts what an engine does in the grab metrics.
type meter struct{ m *telemetry.GrabMetrics }

func (o meter) Outcome(outcome sale.Outcome, replayed bool) {
	o.m.Outcomes.Of(string(outcome)).Inc()
	if replayed {
		o.m.Replays.Inc()
	}
	if outcome == sale.Pending {
		o.m.Pending.Inc()
	}
}

func (o meter) Batch(grabs int, took time.Duration) {
	o.m.BatchSize.Observe(float64(grabs))
	o.m.ScriptSeconds.Observe(took.Seconds())
}

func (o meter) Published(took time.Duration) { o.m.PublishSeconds.Observe(took.Seconds()) }
func (o meter) Queue(delta int)              { o.m.QueueDepth.Add(float64(delta)) }
func (o meter) Unacked(delta int)            { o.m.UnackedBatches.Add(float64(delta)) }

func (o meter) NotLoaded(reason string) {
	o.m.NotLoaded.Inc()
	if reason == stock.ReasonNewServer || reason == stock.ReasonMoved || reason == stock.ReasonOtherEra {
		o.m.EraChanges.Inc()
	}
}

func (o meter) Recovered(batches int) { o.m.OrphanBatches.Add(float64(batches)) }
func (o meter) Selling(delta int)     { o.m.Selling.Add(float64(delta)) }
