package order

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// Ledger is what a worker needs of MySQL.
type Ledger interface {
	// Record writes a batch in one transaction; repeating it changes nothing.
	Record(ctx context.Context, batch ledger.Batch) (ledger.Result, error)
	// BuryDead stores a dead letter; repeating it changes nothing. From then on
	// Record leaves the grant out.
	BuryDead(ctx context.Context, letter ledger.DeadLetter) error
	// Permanent reports whether an error blames the data.
	Permanent(err error) bool
	// Transient reports whether an error passes and is no fault of the data.
	Transient(err error) bool
	// Ping returns nil when the database answers.
	Ping(ctx context.Context) error
}

// Stream is what a worker needs of JetStream.
type Stream interface {
	NewConsumer(cfg stream.ConsumerConfig, handle stream.Handler) (*stream.Consumer, error)
	PublishDead(ctx context.Context, letter stream.DeadLetter) (seq uint64, err error)
}

// WorkerConfig bounds a worker. A zero field takes its default.
type WorkerConfig struct {
	// Loops is how many transactions run at a time, 1 to 64. Default 2.
	Loops int
	// FetchMax is the most messages of one fetch, 1 to 10,000. Default 100. A fetch brings
	// fewer where fewer make a transaction.
	FetchMax int
	// GrantsPerTx is how many grants one transaction writes, 1 to 10,000. Default
	// 1000. A message is not split, so its grants may exceed it.
	GrantsPerTx int
	// ApartAfter is the delivery, counted from 1, from which on a batch is taken
	// apart when it fails for an unknown reason; one that fails for good is
	// taken apart at once. 1 to 1000. Default 3.
	ApartAfter int
	// MaxDeliveries is how often a message is delivered before the grants of it
	// that can't be written become dead letters, 1 to 1000. Default 8.
	MaxDeliveries int
	// RetryBase and RetryMax bound the growing delay of a failed delivery, see
	// backoff.Delay; 1ms to 1h. Defaults 500ms and 1m.
	RetryBase, RetryMax time.Duration
	// AckWait is the consumer's: after it a message that is not settled comes
	// again. Default 30s. The worker asks for more in time.
	AckWait time.Duration
	// TxTimeout bounds one transaction with its retries, 10ms to 1h. Default 30s.
	// After one that met a lock the others of the same batch have a tenth of it.
	TxTimeout time.Duration
	// PingTimeout bounds the question whether a failure is the database's or the
	// batch's, 10ms to 1m. Default 2s.
	PingTimeout time.Duration
}

func (c WorkerConfig) withDefaults() (WorkerConfig, error) {
	setDefault(&c.Loops, 2)
	setDefault(&c.FetchMax, 100)
	setDefault(&c.GrantsPerTx, 1000)
	setDefault(&c.ApartAfter, 3)
	setDefault(&c.MaxDeliveries, 8)
	setDefault(&c.RetryBase, 500*time.Millisecond)
	setDefault(&c.RetryMax, time.Minute)
	setDefault(&c.AckWait, 30*time.Second)
	setDefault(&c.TxTimeout, 30*time.Second)
	setDefault(&c.PingTimeout, 2*time.Second)
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"Loops", c.Loops, 64},
		{"FetchMax", c.FetchMax, 10_000},
		{"GrantsPerTx", c.GrantsPerTx, 10_000},
		{"ApartAfter", c.ApartAfter, 1000},
		{"MaxDeliveries", c.MaxDeliveries, 1000},
	} {
		if n.value < 1 || n.value > n.most {
			return c, fmt.Errorf("order: %s must be 1 to %d, not %d", n.name, n.most, n.value)
		}
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"RetryBase", c.RetryBase, time.Millisecond, time.Hour},
		{"RetryMax", c.RetryMax, c.RetryBase, time.Hour},
		{"AckWait", c.AckWait, 100 * time.Millisecond, time.Hour},
		{"TxTimeout", c.TxTimeout, 10 * time.Millisecond, time.Hour},
		{"PingTimeout", c.PingTimeout, 10 * time.Millisecond, time.Minute},
	} {
		if d.value < d.least || d.value > d.most {
			return c, fmt.Errorf("order: %s must be %s to %s, not %s", d.name, d.least, d.most, d.value)
		}
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Reasons of a delivery that is tried again, for the metrics.
const (
	ReasonAway   = "ledger_away" // the database can't be reached
	ReasonFailed = "tx_failed"   // the transaction failed: a lock, no time, or why is not known
	ReasonPoison = "poison"      // a grant can't be written; it gets more chances
	ReasonBurial = "burial"      // a dead letter could not be stored
)

// RetryReasons lists every reason.
var RetryReasons = []string{ReasonAway, ReasonFailed, ReasonPoison, ReasonBurial}

// Tables lists the tables whose rows the worker counts.
var Tables = []string{tableOrders, tableDeadLetters}

const (
	tableOrders      = "orders"
	tableDeadLetters = "dead_letters"
)

// Worker turns the grants of the stream into orders.
type Worker struct {
	cfg      WorkerConfig
	ledger   Ledger
	stream   Stream
	consumer *stream.Consumer
	written  func(orderID string)
	metrics  *telemetry.OrderMetrics
	log      *slog.Logger

	fetchSize atomic.Int64 // messages that make about one transaction
}

// NewWorker returns a worker. written is called for every order that is in the
// ledger now; it must not block and may be nil.
func NewWorker(cfg WorkerConfig, l Ledger, s Stream, written func(orderID string),
	metrics *telemetry.OrderMetrics, log *slog.Logger) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if written == nil {
		written = func(string) {}
	}
	w := &Worker{cfg: cfg, ledger: l, stream: s, written: written, metrics: metrics, log: log}
	w.consumer, err = s.NewConsumer(stream.ConsumerConfig{
		Loops: cfg.Loops, FetchMax: cfg.FetchMax, RetryDelay: cfg.RetryBase,
		FetchSize: func() int { return int(w.fetchSize.Load()) },
	}, w.handle)
	if err != nil {
		return nil, fmt.Errorf("order worker: %w", err)
	}
	return w, nil
}

// Run writes orders until ctx ends; transactions in hand are finished first.
func (w *Worker) Run(ctx context.Context) error {
	w.consumer.Run(ctx)
	return nil
}

// Tally is what became of the messages of one call.
type Tally struct {
	Grants   int            // in committed transactions, replays included
	Orders   int            // rows of orders that are new
	Rejected []string       // orders that the ledger's last guard refused
	Buried   []Buried       // grants that became dead letters
	Retried  map[string]int // messages that come again, by reason
	Failure  error          // the last thing that failed
}

// Buried is one grant, or one message that can't be read, that was given up.
type Buried struct {
	SaleID  string
	OrderID string // empty for a whole message
	Seq     uint64
	Reason  string
}

// handle is the consumer's Handler: it does the work and tells metrics and log.
func (w *Worker) handle(ctx context.Context, messages []stream.Message) []stream.Result {
	stop := w.keep(messages)
	defer stop()
	results, tally := w.runOnce(ctx, messages)
	w.metrics.Grants.Add(float64(tally.Grants))
	w.metrics.Rejected.Add(float64(len(tally.Rejected)))
	w.metrics.DeadLetters.Add(float64(len(tally.Buried)))
	w.metrics.Rows.Of(tableOrders).Add(float64(tally.Orders))
	w.metrics.Rows.Of(tableDeadLetters).Add(float64(len(tally.Buried)))
	for _, id := range tally.Rejected {
		w.log.ErrorContext(ctx, "order rejected: the ledger has no stock left for a grant; more was granted than there is", "order_id", id)
	}
	for _, b := range tally.Buried {
		w.log.ErrorContext(ctx, "grant became a dead letter", "sale_id", b.SaleID, "order_id", b.OrderID, "seq", b.Seq, "reason", b.Reason)
	}
	for reason, n := range tally.Retried {
		w.metrics.Retries.Of(reason).Add(float64(n))
		w.log.WarnContext(ctx, "messages come again", "reason", reason, "messages", n, "error", tally.Failure)
	}
	return results
}

// keepEvery is the longest time between two requests for more time: another
// service, started with other settings, may have shortened the consumer's AckWait.
const keepEvery = 10 * time.Second

// keep asks for more time for messages that take long, until stop is called.
func (w *Worker) keep(messages []stream.Message) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(min(w.cfg.AckWait/3, keepEvery))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for i := range messages {
					// A failure means that it comes again, which is harmless.
					_ = messages[i].InProgress()
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// runOnce writes messages, as many per transaction as fit, and returns what
// becomes of each. Every step may be the last before a crash: an order is written
// once however often its message comes, and a message is settled only after its
// work is committed.
func (w *Worker) runOnce(ctx context.Context, messages []stream.Message) ([]stream.Result, Tally) {
	r := &run{
		worker: w, results: make([]stream.Result, len(messages)),
		tally: Tally{Retried: make(map[string]int)},
	}
	deliveries := r.decode(ctx, messages)
	w.fetchSize.Store(w.nextFetch(deliveries))
	for _, p := range r.parts(deliveries) {
		if r.away {
			r.retryAll(p, ReasonAway)
			continue
		}
		r.write(ctx, p)
	}
	return r.results, r.tally
}

// nextFetch returns how many messages like these make a transaction. It grows twofold at
// most, because the next ones may be larger. Whoever fetches more than he can write keeps
// them from loops that have nothing to do.
func (w *Worker) nextFetch(deliveries []*delivery) int64 {
	grants := 0
	for _, d := range deliveries {
		grants += len(d.batch.Grants)
	}
	n := int64(len(deliveries))
	return min(n*int64(w.cfg.GrantsPerTx)/int64(max(grants, 1)), 2*max(n, w.fetchSize.Load()), int64(w.cfg.FetchMax))
}
