// Package grab decides who gets what. An Engine holds one batcher per sale:
//
//	Grab ─▶ admission (memory only) ─▶ queue ─▶ batcher ─▶ Redis: grab.lua
//	                                              │
//	      won ◀── PubAck ◀── publisher ◀── batch ─┘
//
// A batcher has one script call in flight; whatever queued meanwhile is the
// next batch. A batch with winners is published before anyone hears "won";
// without an answer from the stream within the publish deadline its winners
// hear "pending". The outbox in Redis holds a batch until it is in the stream,
// so that it survives this process.
//
// When a script call's answer is lost, its batch is in doubt: its clients hear
// "unavailable" and the batcher recovers before it sells on: it bars the batch
// number, so that the call can't be decided any more, and publishes
// what its own outbox holds.
package grab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// Stock is what an engine needs of Redis.
type Stock interface {
	Grab(ctx context.Context, b stock.Batch) (stock.Decision, error)
	State(ctx context.Context, saleID string, skus []string) (stock.State, error)
	Find(ctx context.Context, saleID, orderID string) (f stock.Found, ok bool, err error)
	Owners(ctx context.Context, saleID string, limit int64, visit func(orderID string)) (bool, error)
	Outbox(ctx context.Context, saleID, process string, limit int64) ([][]byte, error)
	Trim(ctx context.Context, t stock.Trim) (int64, error)
	Hold(ctx context.Context, process string, ttl time.Duration) error
	Leave(ctx context.Context, process string) error
}

// Stream is what an engine needs of JetStream.
type Stream interface {
	// Publish stores a batch under the fence of its head. Its errors are those
	// of pkg/stream: ErrFenced, ErrBusy, ErrNotSent; any other is ambiguous.
	Publish(ctx context.Context, saleID string, head sale.BatchHead, body []byte) (uint64, error)
	// Reachable reports whether there is a connection; it is asked per grab.
	Reachable() bool
	// AskReconcile asks a reconciler to restore a sale.
	AskReconcile(ctx context.Context, saleID, reason string) ([]byte, error)
}

// Config holds the bounds of an engine. The zero value of a field means its
// default.
type Config struct {
	Process         string        // names this process; required, unique per start
	BatchMax        int           // grabs per script call; default 192, at most stock.MaxAsks
	QueueMax        int           // waiting grabs per sale; default 16384
	InFlightMax     int64         // grabs in this process; default 20000
	UnackedBatches  int           // batches per sale that wait for the stream; default 3
	PublishDeadline time.Duration // until a winner hears "pending"; default 2s
	SoldOutTTL      time.Duration // life of the local sold-out mark; default 1s, negative is no mark
	LeaseTTL        time.Duration // of the process lease in Redis; default 5s
	LoadWait        time.Duration // how long a deduction waits for its quota to be loaded; default 3s
	BatcherIdle     time.Duration // until a sale that nobody asks for costs no memory; default 1m
	// Now tells the time by which sales are open and limits count; default time.Now.
	Now func() time.Time
}

const (
	// batchBytes bounds the records of one batch, see drain. pkg/stream demands that
	// a message may be that large.
	batchBytes = stream.MinPayload - 1<<10
	// trimDelay is how long an idle batcher waits before it trims its outbox;
	// a busy one trims with its next call.
	trimDelay = 50 * time.Millisecond
	// trimTimeout and leaseTimeout bound small Redis calls beside the hot path.
	trimTimeout  = 2 * time.Second
	leaseTimeout = 2 * time.Second
	// askEvery is how often a sale asks for a reconcile while it is not loaded.
	askEvery = time.Second
	// askTimeout bounds one such request. A large sale takes longer; asking again
	// does no harm.
	askTimeout = 5 * time.Second
	// outboxPage is how many batches a recovery reads at a time.
	outboxPage = 64
	// retryBase and retryMax bound the growing delay between publish attempts
	// and between recovery attempts.
	retryBase = 10 * time.Millisecond
	retryMax  = time.Second
	// retryAfter is what clients hear when they should come again.
	retryAfter = time.Second
)

func (c Config) withDefaults() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.BatchMax, 192)
	def(&c.QueueMax, 16384)
	def(&c.UnackedBatches, 3)
	if c.InFlightMax == 0 {
		c.InFlightMax = 20000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&c.PublishDeadline, 2 * time.Second}, {&c.SoldOutTTL, time.Second}, {&c.LeaseTTL, 5 * time.Second},
		{&c.LoadWait, 3 * time.Second}, {&c.BatcherIdle, time.Minute}} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	switch {
	case !sale.ValidID(c.Process):
		return c, errors.New("grab: process: must be 1 to 64 of A-Z a-z 0-9 _ -")
	case c.BatchMax < 1 || c.BatchMax > stock.MaxAsks:
		return c, fmt.Errorf("grab: batch max %d: must be 1 to %d", c.BatchMax, stock.MaxAsks)
	case c.QueueMax < 1 || c.UnackedBatches < 1 || c.InFlightMax < 1:
		return c, errors.New("grab: queue, in-flight and unacked bounds must be at least 1")
	}
	return c, nil
}

// Engine decides grabs. It is safe for concurrent use once Run has started.
type Engine struct {
	cfg     Config
	stock   Stock
	stream  Stream
	observe Observer
	log     *slog.Logger
	now     func() time.Time

	inFlight    atomic.Int64
	inFlightMax atomic.Int64
	catalogue   catalogue

	mu       sync.RWMutex
	batchers map[string]*batcher
	numbered uint64          // no batcher that is gone gave out a higher number
	running  context.Context // nil until Run; batchers live in it
	stopped  bool
	work     sync.WaitGroup
}

// New returns an engine. observe and log may be nil.
func New(cfg Config, st Stock, str Stream, observe Observer, log *slog.Logger) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if observe == nil {
		observe = nothing{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		cfg: cfg, stock: st, stream: str, observe: observe, log: log, now: cfg.Now,
		batchers: make(map[string]*batcher),
	}
	e.inFlightMax.Store(cfg.InFlightMax)
	return e, nil
}

// SetInFlightMax changes how many grabs may be in this process, from the next one
// on; n is at least 1.
func (e *Engine) SetInFlightMax(n int64) { e.inFlightMax.Store(n) }

// Process is the name under which this engine's outboxes stand in Redis.
func (e *Engine) Process() string { return e.cfg.Process }

// Request is one user's request for items of one sale.
type Request struct {
	SaleID string
	User   string
	Key    string // idempotency key, empty for none
	IP     string
	// Lines names SKU and quantity; empty asks for one unit of the only item.
	Lines []sale.Line
}

// Answer is the outcome of a grab.
type Answer struct {
	Outcome   sale.Outcome
	OrderID   string // won, pending, already_grabbed
	Replayed  bool   // won before, by the same key
	Lines     []sale.Line
	ExpiresAt time.Time     // when an unpaid order ends
	Limit     string        // limit_exceeded: which
	Policy    string        // rate_limited: whose rate
	SKU       string        // sold_out: the first item that is short
	Left      int64         // sold_out: units left of SKU
	Remaining int64         // of a quota, once decided: units it has left, -1 is unlimited
	Reason    string        // not_loaded, unavailable: why, for people
	Retry     time.Duration // not_loaded, unavailable, rate_limited: when to come again
}

// PolicySale is the policy of a sale's own rate limit.
const PolicySale = "sale"

// ErrUnknownSale says that the catalogue has no such sale, or only a draft.
var ErrUnknownSale = errors.New("unknown sale")

// ErrStopped says that the engine does not run.
var ErrStopped = errors.New("grab engine is stopped")

// Grab decides a request. A refusal is an Answer. Errors: ErrUnknownSale, a
// *sale.FieldError for lines that can't be of this sale, or ErrStopped. When ctx
// ends before the grab's turn has come, it is not decided and the Answer is
// unavailable.
func (e *Engine) Grab(ctx context.Context, r Request) (Answer, error) {
	if e.inFlight.Add(1) > e.inFlightMax.Load() {
		e.inFlight.Add(-1)
		return e.done(unavailable("too many requests in flight")), nil
	}
	defer e.inFlight.Add(-1)
	s, ok := e.Sale(r.SaleID)
	if !ok {
		return Answer{}, ErrUnknownSale
	}
	lines, err := priced(s, r.Lines)
	if err != nil {
		return Answer{}, err
	}
	at := e.now()
	if refusal, open := closed(s, at); !open {
		return e.done(e.afterClosing(ctx, s.ID, r, refusal)), nil
	}
	return e.answered(e.submit(ctx, s, sale.Grant{
		Kind: sale.GrantGrab, OrderID: sale.OrderID(s.ID, r.User, r.Key), User: r.User, Key: r.Key, IP: r.IP,
		At: at, ExpiresAt: at.Add(time.Duration(s.PaymentWindow)), Lines: lines,
	}))
}

// afterClosing answers a key that won before the sale was paused or ended with
// its order; everybody else with the refusal.
func (e *Engine) afterClosing(ctx context.Context, saleID string, r Request, refusal Answer) Answer {
	if r.Key == "" || refusal.Outcome == sale.NotOpen {
		return refusal
	}
	found, ok, err := e.stock.Find(ctx, saleID, sale.OrderID(saleID, r.User, r.Key))
	if _, notLoaded := errors.AsType[*stock.NotLoaded](err); notLoaded || (err == nil && !ok) {
		return refusal
	}
	if err != nil {
		// Each caller hears it, and why is told by those who wait for the store: a crowd must not fill the log.
		e.log.Debug("grant of a closed sale not looked up", "sale", saleID, "error", err)
		return unavailable("the stock store can't be reached")
	}
	g, _, err := sale.DecodeGrant(found.Record)
	if err != nil {
		e.log.Error("stored grant can't be read", "sale", saleID, "error", err)
		return unavailable("the stored grant can't be read")
	}
	if !found.Durable {
		return granted(sale.Pending, &g, true)
	}
	return granted(sale.Won, &g, true)
}

// Adjustment takes units away from an item for good.
type Adjustment struct {
	SaleID, SKU string
	Units       int64
	ID          string // order id of the adjustment; names it for retries
	Note        string // who and why, kept in the flow
}

// Take carries an adjustment out the way a grab goes: won when it is in the
// stream, sold_out with Left when fewer units are left.
func (e *Engine) Take(ctx context.Context, a Adjustment) (Answer, error) {
	s, ok := e.Sale(a.SaleID)
	if !ok {
		return Answer{}, ErrUnknownSale
	}
	return e.answered(e.submit(ctx, s, sale.Grant{
		Kind: sale.GrantAdjust, OrderID: a.ID, Key: a.Note, At: e.now(),
		Lines: []sale.Line{{SKU: a.SKU, Quantity: a.Units}},
	}))
}

// submit queues a grant and waits for its answer.
func (e *Engine) submit(ctx context.Context, s *sale.Sale, g sale.Grant) (Answer, error) {
	for {
		b, err := e.batcher(s.ID)
		if err != nil {
			return Answer{}, err
		}
		if g.Kind == sale.GrantGrab {
			if sku, marked := b.soldOut.refuses(g.At, &g); marked {
				return Answer{Outcome: sale.SoldOut, SKU: sku}, nil
			}
		}
		t := newTicket(ctx, g)
		refusal, queued := b.queue(t)
		if queued {
			// Every ticket is answered, and soon: there is nothing else to wait for.
			<-t.done
			return t.answer, nil
		}
		if refusal.Reason != retired {
			return refusal, nil
		}
		// It was retired between our getting it and our queueing: there is, or will
		// be, another.
	}
}

// answered counts an answer.
func (e *Engine) answered(a Answer, err error) (Answer, error) {
	if err != nil {
		return a, err
	}
	return e.done(a), nil
}

const (
	stopping = "this process is stopping"
	retired  = "the batcher was retired" // nobody but submit hears it
)

func (e *Engine) done(a Answer) Answer {
	e.observe.Outcome(a.Outcome, a.Replayed)
	return a
}

// priced completes a request's lines with the sale's prices.
func priced(s *sale.Sale, lines []sale.Line) ([]sale.Line, error) {
	if len(lines) == 0 {
		if len(s.Items) != 1 {
			return nil, &sale.FieldError{Field: "items", Message: "is required: this sale has several items"}
		}
		return []sale.Line{{SKU: s.Items[0].SKU, Quantity: 1, PriceCents: s.Items[0].PriceCents}}, nil
	}
	if err := s.ValidateLines(lines); err != nil {
		return nil, err
	}
	out := make([]sale.Line, len(lines))
	for i, l := range lines {
		it, _ := s.Item(l.SKU)
		out[i] = sale.Line{SKU: l.SKU, Quantity: l.Quantity, PriceCents: it.PriceCents}
	}
	return out, nil
}

// closed tells how a sale that is not open refuses.
func closed(s *sale.Sale, now time.Time) (Answer, bool) {
	switch s.Phase(now) {
	case sale.PhaseOpen:
		return Answer{}, true
	case sale.PhasePaused:
		return Answer{Outcome: sale.Paused}, false
	case sale.PhaseEnded:
		return Answer{Outcome: sale.Ended}, false
	default:
		return Answer{Outcome: sale.NotOpen}, false
	}
}

func unavailable(why string) Answer {
	return Answer{Outcome: sale.Unavailable, Reason: why, Retry: retryAfter}
}

func notLoaded(why string) Answer {
	return Answer{Outcome: sale.NotLoaded, Reason: why, Retry: retryAfter}
}
