package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// EventLedger is what a Publisher needs of MySQL.
type EventLedger interface {
	Events(ctx context.Context, limit int) ([]ledger.Event, error)
	SettleEvents(ctx context.Context, events []ledger.Event) (deliveries int, err error)
}

// EventStream is what a Publisher needs of JetStream.
type EventStream interface {
	PublishEvents(ctx context.Context, events []stream.Event) (stored []bool, err error)
	Acquire(ctx context.Context, name string, ttl time.Duration) (*stream.Lease, error)
}

// PublisherConfig bounds a Publisher. A zero field takes its default.
type PublisherConfig struct {
	// Page is the most events of one round, 1 to ledger.PageMax. Default 500.
	Page int
	// Interval is the pause after a round that found less than a page, 1ms to 1m. Default 100ms.
	Interval time.Duration
	// LeaseTTL is how long after the death of the process that publishes another one
	// goes on, 1s to 1m in whole seconds. Default 5s.
	LeaseTTL time.Duration
	// RetryMax is the longest pause after failed rounds; it grows from Interval.
	// Interval to 10m, default 5s.
	RetryMax time.Duration
}

func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	setDefault(&c.Page, 500)
	setDefault(&c.Interval, 100*time.Millisecond)
	setDefault(&c.LeaseTTL, 5*time.Second)
	setDefault(&c.RetryMax, 5*time.Second)
	switch {
	case c.Page < 1 || c.Page > ledger.PageMax:
		return c, fmt.Errorf("publisher: Page must be 1 to %d", ledger.PageMax)
	case c.Interval < time.Millisecond || c.Interval > time.Minute:
		return c, errors.New("publisher: Interval must be 1ms to 1m")
	case c.LeaseTTL < time.Second || c.LeaseTTL > time.Minute || c.LeaseTTL%time.Second != 0:
		return c, errors.New("publisher: LeaseTTL must be 1s to 1m in whole seconds")
	case c.RetryMax < c.Interval || c.RetryMax > 10*time.Minute:
		return c, errors.New("publisher: RetryMax must be Interval to 10m")
	}
	return c, nil
}

// publisherLease keeps a second publisher off, for the order of events.
const publisherLease = "order-events"

// Publisher brings what happened to orders from the ledger to the event stream:
//
//	read a page ─▶ publish, await the acknowledgements ─▶ one transaction: queue deliveries, delete the events
//
// One process does it at a time. A crash at any point, or a lease that was lost
// without noticing, repeats events and loses none; the stream drops the repeats of two
// minutes, consumers tell later ones by their ids. The events of one order appear
// in the order in which they happened.
type Publisher struct {
	cfg     PublisherConfig
	ledger  EventLedger
	stream  EventStream
	metrics *telemetry.EventMetrics
	log     *slog.Logger
}

// NewPublisher returns a Publisher; Run starts it.
func NewPublisher(cfg PublisherConfig, l EventLedger, s EventStream, metrics *telemetry.EventMetrics, log *slog.Logger) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, ledger: l, stream: s, metrics: metrics, log: log}, nil
}

// Run publishes until ctx ends, whenever no other process does.
func (p *Publisher) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		lease, err := p.stream.Acquire(ctx, publisherLease, p.cfg.LeaseTTL)
		switch {
		case err == nil:
			failures = 0
			p.publish(ctx, lease)
			continue
		case errors.Is(err, stream.ErrHeld):
			failures = 0
			p.metrics.Lag.Set(0) // the one who publishes knows
		case ctx.Err() == nil:
			failures++
			p.metrics.Failures.Inc()
			p.log.WarnContext(ctx, "can't take the lease for publishing events", "error", err)
		}
		backoff.Pause(ctx, backoff.Delay(failures, p.cfg.LeaseTTL/2, 2*p.cfg.LeaseTTL))
	}
	return nil
}

// publish makes rounds for as long as the lease holds.
func (p *Publisher) publish(ctx context.Context, lease *stream.Lease) {
	holding, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-lease.Lost():
			cancel()
		case <-holding.Done():
		}
	})
	p.rounds(holding)
	cancel()
	watch.Wait()
	// If it fails the lease ends by itself.
	_ = lease.Release(context.WithoutCancel(ctx))
}

func (p *Publisher) rounds(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		told, err := p.runOnce(ctx)
		p.count(told, err)
		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			p.log.WarnContext(ctx, "events not published, they will be", "error", err, "attempt", failures)
			backoff.Pause(ctx, backoff.Delay(failures, p.cfg.Interval, p.cfg.RetryMax))
		case told.read < p.cfg.Page:
			failures = 0
			backoff.Pause(ctx, p.cfg.Interval)
		default:
			failures = 0
		}
	}
}

// told is what one round did.
type told struct {
	read       int            // events found
	published  map[string]int // that are on the stream now, by kind
	deliveries int            // that are due by them
	oldest     time.Time      // event that is not settled; zero when all are
}

// runOnce publishes one page of events and settles those that are on the stream.
func (p *Publisher) runOnce(ctx context.Context) (told, error) {
	page, err := p.ledger.Events(ctx, p.cfg.Page)
	if err != nil {
		return told{}, err
	}
	t := told{read: len(page), published: make(map[string]int)}
	if len(page) == 0 {
		return t, nil
	}
	t.oldest = page[0].At
	stored, publishErr := p.store(ctx, page)
	for _, e := range stored {
		t.published[string(e.Kind)]++
	}
	if len(stored) > 0 {
		if t.deliveries, err = p.ledger.SettleEvents(ctx, stored); err != nil {
			return t, errors.Join(publishErr, err)
		}
	}
	if publishErr == nil && len(page) < p.cfg.Page {
		t.oldest = time.Time{}
	}
	return t, publishErr
}

// store publishes events in waves that hold at most one event of each order, so
// that none is overtaken by a later one of its order. After a failure the rest is left for
// another round. It returns what is on the stream.
func (p *Publisher) store(ctx context.Context, page []ledger.Event) ([]ledger.Event, error) {
	var done []ledger.Event
	for len(page) > 0 {
		wave, rest := split(page)
		messages := make([]stream.Event, len(wave))
		for i, e := range wave {
			messages[i] = stream.Event{ID: e.ID, Kind: e.Kind, Body: e.Body}
		}
		stored, err := p.stream.PublishEvents(ctx, messages)
		for i, e := range wave {
			if stored[i] {
				done = append(done, e)
			}
		}
		if err != nil {
			return done, err
		}
		page = rest
	}
	return done, nil
}

// split returns the first event of each order, and the others.
func split(page []ledger.Event) (first, rest []ledger.Event) {
	seen := make(map[string]bool, len(page))
	for _, e := range page {
		if seen[e.OrderID] {
			rest = append(rest, e)
			continue
		}
		seen[e.OrderID] = true
		first = append(first, e)
	}
	return first, rest
}

func (p *Publisher) count(t told, err error) {
	for kind, n := range t.published {
		p.metrics.Published.Of(kind).Add(float64(n))
	}
	p.metrics.Deliveries.Add(float64(t.deliveries))
	if err != nil {
		p.metrics.Failures.Inc()
		if t.read == 0 {
			return // nobody knows how old they are
		}
	}
	lag := 0.0
	if !t.oldest.IsZero() {
		lag = max(0, time.Since(t.oldest).Seconds())
	}
	p.metrics.Lag.Set(lag)
}
