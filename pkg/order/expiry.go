package order

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// ExpiryLedger is what an Expiry needs of MySQL.
type ExpiryLedger interface {
	// Time is what the database's clock says.
	Time(ctx context.Context) (time.Time, error)
	// ExpireDue ends some of the orders that were not paid in time. Others may call
	// it at the same time: an order expires once.
	ExpireDue(ctx context.Context, at time.Time, after ledger.DueOrder, limit int) (ledger.Expired, error)
	// Permanent reports whether an error blames the data.
	Permanent(err error) bool
}

// ManyGivebacks gives stock that the ledger has decided to come back to Redis.
type ManyGivebacks interface {
	ReturnAll(ctx context.Context, all []sale.Giveback) error
}

// ExpiryConfig bounds an Expiry. A zero field takes its default.
type ExpiryConfig struct {
	// Interval is the pause between two rounds, 10ms to 1h, and so about the longest
	// time that an order outlives its payment window. Default 1s.
	Interval time.Duration
	// Batch is how many orders one transaction ends, 1 to ledger.PageMax. Default 500.
	Batch int
	// BatchesMax is how many transactions one round has at most, 1 to 1,000,000; what
	// is left is for the next round. Default 1000.
	BatchesMax int
	// TxTimeout bounds one transaction with its retries, 10ms to 1h. Default 30s.
	TxTimeout time.Duration
	// GivebackTimeout bounds giving the stock of one transaction back in Redis, 10ms
	// to 1h; the relay does it later otherwise. Default 5s.
	GivebackTimeout time.Duration
}

func (c ExpiryConfig) withDefaults() (ExpiryConfig, error) {
	setDefault(&c.Interval, time.Second)
	setDefault(&c.Batch, 500)
	setDefault(&c.BatchesMax, 1000)
	setDefault(&c.TxTimeout, 30*time.Second)
	setDefault(&c.GivebackTimeout, 5*time.Second)
	switch {
	case c.Batch < 1 || c.Batch > ledger.PageMax:
		return c, fmt.Errorf("order: Batch must be 1 to %d, not %d", ledger.PageMax, c.Batch)
	case c.BatchesMax < 1 || c.BatchesMax > 1_000_000:
		return c, fmt.Errorf("order: BatchesMax must be 1 to 1000000, not %d", c.BatchesMax)
	}
	for name, d := range map[string]time.Duration{
		"Interval": c.Interval, "TxTimeout": c.TxTimeout, "GivebackTimeout": c.GivebackTimeout,
	} {
		if d < 10*time.Millisecond || d > time.Hour {
			return c, fmt.Errorf("order: %s must be 10ms to 1h, not %s", name, d)
		}
	}
	return c, nil
}

// Reasons of a failure, for the metrics.
const (
	ExpiryLedgerFailed   = "ledger"   // a transaction failed; its orders expire later
	ExpiryGivebackFailed = "giveback" // the stock could not be given back in Redis at once; the relay does it
)

// ExpiryReasons lists every reason.
var ExpiryReasons = []string{ExpiryLedgerFailed, ExpiryGivebackFailed}

// Expiry ends orders that were not paid in time: the ledger decides, many orders in
// one transaction, then the stock is given back in Redis. Several processes may run
// one each; they share the work by the locks of the ledger, and what one leaves
// behind in a crash is given back by the relay of the reconcilers.
type Expiry struct {
	cfg       ExpiryConfig
	ledger    ExpiryLedger
	givebacks ManyGivebacks
	changed   func(orderID string)
	metrics   *telemetry.ExpiryMetrics
	log       *slog.Logger
	stuck     int // of the round before
}

// NewExpiry returns an Expiry. changed is called for every order that expired; it
// must not block and may be nil.
func NewExpiry(cfg ExpiryConfig, l ExpiryLedger, givebacks ManyGivebacks, changed func(orderID string),
	metrics *telemetry.ExpiryMetrics, log *slog.Logger) (*Expiry, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if changed == nil {
		changed = func(string) {}
	}
	return &Expiry{cfg: cfg, ledger: l, givebacks: givebacks, changed: changed, metrics: metrics, log: log}, nil
}

// Run ends orders until ctx ends; what the ledger has decided by then is given back first.
func (e *Expiry) Run(ctx context.Context) error {
	tick := time.NewTicker(e.cfg.Interval)
	defer tick.Stop()
	for {
		e.tell(ctx, e.runOnce(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Round is what one round came to.
type Round struct {
	Batches int
	Expired int
	Stuck   []ledger.StuckOrder
	// Failed are the batches that could not be written, Failure is what failed last.
	Failed  int
	Failure error
	// Later is how many givebacks were left to the relay, and Away is why.
	Later int
	Away  error
}

// tell counts and logs what became of a round.
func (e *Expiry) tell(ctx context.Context, r Round) {
	e.metrics.Stuck.Set(float64(len(r.Stuck)))
	if r.Failed > 0 && ctx.Err() == nil {
		e.log.WarnContext(ctx, "unpaid orders did not expire; the next round tries again", "batches", r.Failed, "error", r.Failure)
	}
	if r.Later > 0 {
		e.log.WarnContext(ctx, "stock of expired orders not given back yet, the relay will", "orders", r.Later, "error", r.Away)
	}
	if len(r.Stuck) > 0 && len(r.Stuck) != e.stuck {
		e.log.ErrorContext(ctx, "unpaid orders can't expire", "orders", len(r.Stuck), "order_id", r.Stuck[0].OrderID, "error", r.Stuck[0].Reason)
	}
	e.stuck = len(r.Stuck)
}

// runOnce ends what is due now, a batch after the other.
func (e *Expiry) runOnce(ctx context.Context) Round {
	var r Round
	var after ledger.DueOrder
	now, err := e.time(ctx)
	if err != nil {
		r.Failed, r.Failure = 1, err
		e.metrics.Failures.Of(ExpiryLedgerFailed).Inc()
		return r
	}
	for r.Batches < e.cfg.BatchesMax && ctx.Err() == nil {
		found, err := e.batch(ctx, now, after)
		r.Batches++
		r.Stuck = append(r.Stuck, found.Stuck...)
		r.Expired += len(found.Givebacks)
		if err != nil {
			r.Failed, r.Failure = r.Failed+1, err
			e.metrics.Failures.Of(ExpiryLedgerFailed).Inc()
			if !e.ledger.Permanent(err) {
				return r // an outage, a lock: not a matter of these orders
			}
		}
		if len(found.Givebacks) > 0 {
			e.giveBack(ctx, found.Givebacks, &r)
		}
		if found.Due < e.cfg.Batch {
			break
		}
		after = found.Last
	}
	e.metrics.Lag.Set(0)
	return r
}

// time is the database's: a process whose clock is ahead must not end orders early.
func (e *Expiry) time(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.TxTimeout)
	defer cancel()
	return e.ledger.Time(ctx)
}

// batch has the ledger end some orders.
func (e *Expiry) batch(ctx context.Context, now time.Time, after ledger.DueOrder) (ledger.Expired, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.TxTimeout)
	defer cancel()
	begin := time.Now()
	found, err := e.ledger.ExpireDue(ctx, now, after, e.cfg.Batch)
	if found.Due > 0 {
		e.metrics.Seconds.Observe(time.Since(begin).Seconds())
		e.metrics.Lag.Set(max(0, now.Sub(found.First.ExpiresAt).Seconds()))
	}
	e.metrics.Orders.Add(float64(len(found.Givebacks)))
	for i := range found.Givebacks {
		e.changed(found.Givebacks[i].OrderID)
	}
	return found, err
}

// giveBack brings the stock of expired orders back into Redis. The ledger has
// decided, so it goes on when the service stops. Once Redis fails, the rest of the
// round is the relay's.
func (e *Expiry) giveBack(ctx context.Context, all []sale.Giveback, r *Round) {
	if r.Away == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.GivebackTimeout)
		defer cancel()
		if r.Away = e.givebacks.ReturnAll(ctx, all); r.Away == nil {
			return
		}
	}
	r.Later += len(all)
	e.metrics.Failures.Of(ExpiryGivebackFailed).Inc()
}
