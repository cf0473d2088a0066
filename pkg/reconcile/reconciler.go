package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"golang.org/x/sync/errgroup"
)

// Stream is what a reconciler needs of JetStream. A *stream.Stream has it.
type Stream interface {
	Publisher
	RestockSignal
	EnsureTopology(ctx context.Context) error
	Acquire(ctx context.Context, name string, ttl time.Duration) (*stream.Lease, error)
	LastFence(ctx context.Context, saleID string) (stream.Fence, error)
	BeginGeneration(ctx context.Context, saleID string, atLeast int64) (stream.Fence, error)
	ReadGrants(ctx context.Context, saleID string, afterSeq, throughSeq uint64,
		visit func(seq uint64, batch sale.Batch) error) error
	Info(ctx context.Context) (stream.Status, error)
	TimestampAt(ctx context.Context, seq uint64) (at int64, found bool, err error)
	ServeReconcile(ctx context.Context,
		fn func(ctx context.Context, saleID, reason string) (reply []byte, err error)) error
}

// Ledger is what a reconciler needs of MySQL. A *ledger.Ledger has it.
type Ledger interface {
	GivebackLedger
	SaleLedger
	ReadSnapshot(ctx context.Context, saleID string, streamID int64, firstSeq uint64, read func(*ledger.Snapshot) error) error
	AllGivebackIDs(ctx context.Context, saleID string, since time.Time, visit func(id string, units int64) error) error
	GetGiveback(ctx context.Context, saleID, id string) (sale.Giveback, error)
	UnappliedGivebacks(ctx context.Context, after *sale.Giveback, limit int) ([]sale.Giveback, error)
	HighestLimits(ctx context.Context, saleID string) (perUser int64, byLimit map[string]int64, err error)
	Verify(ctx context.Context, saleID string) ([]ledger.Check, error)
}

// SaleLedger holds the sales and their generations.
type SaleLedger interface {
	GetSale(ctx context.Context, id string) (sale.Sale, error)
	ListSales(ctx context.Context, after string, limit int) ([]sale.Sale, error)
	ListQuotas(ctx context.Context, after string, limit int) ([]sale.Sale, error)
	NextGeneration(ctx context.Context, saleID string) (int64, error)
	SetGeneration(ctx context.Context, saleID string, generation int64) error
	SetStock(ctx context.Context, c ledger.StockChange, generation int64, loose ledger.Grants) (ledger.StockSet, error)
}

// Reconciler rebuilds, audits and relays. It is safe for concurrent use.
type Reconciler struct {
	cfg       Config
	stock     *stock.Store
	minter    *stock.Minter
	stream    Stream
	ledger    Ledger
	relay     *Relay
	givebacks *Givebacks
	audits    audits
	sales     saleList
	observe   Observer
	log       *slog.Logger
	now       func() time.Time
	// step is called before each step of a run; tests end the process in it.
	step func(saleID string, step Step)
}

// New returns a reconciler. observe and log may be nil.
func New(cfg Config, st *stock.Store, str Stream, l Ledger, observe Observer, log *slog.Logger) (*Reconciler, error) {
	if err := cfg.withDefaults(); err != nil {
		return nil, err
	}
	if observe == nil {
		observe = nothing{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{
		cfg: cfg, stock: st, minter: stock.NewMinter(st), stream: str, ledger: l,
		relay: NewRelay(st, str, cfg.RelayPage), givebacks: NewGivebacks(st, l, str),
		observe: observe, log: log, now: cfg.Now, step: func(string, Step) {},
	}, nil
}

// topologyEvery is how many looks of the relay pass between two looks whether NATS
// still has our streams, buckets and consumer: it may lose its data under running
// services, which make all of that only when they begin.
const topologyEvery = 5

// Run answers reconcile requests, audits, relays and keeps the topology until ctx
// ends. Work in hand then stops at its next call to a server; whoever comes next
// completes it.
func (r *Reconciler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.stream.ServeReconcile(ctx, r.serve) })
	group.Go(func() error { r.every(ctx, r.cfg.AuditInterval, "audit", r.Audit); return nil })
	group.Go(func() error { r.every(ctx, r.cfg.RelayInterval, "relay", r.RelayAll); return nil })
	group.Go(func() error {
		r.every(ctx, topologyEvery*r.cfg.RelayInterval, "topology", r.stream.EnsureTopology)
		return nil
	})
	return group.Wait()
}

// every calls fn at once and then per interval until ctx ends. A failure is told
// once, here, and the next call tries again.
func (r *Reconciler) every(ctx context.Context, interval time.Duration, what string, fn func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("periodic work failed", "work", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// serve answers one request of stream.AskReconcile with a Report.
func (r *Reconciler) serve(ctx context.Context, saleID, reason string) ([]byte, error) {
	report, err := r.Reconcile(ctx, saleID, reason)
	if err != nil {
		// The asker may be gone by now.
		r.log.Warn("a requested reconciliation failed", "sale_id", saleID, "reason", reason, "error", err)
		return nil, err
	}
	reply, err := json.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	return reply, nil
}

// Reconcile makes the sale's state in Redis what ledger and stream say. A sale
// that is loaded and current is left alone, unless the reason is ReasonForced or
// ReasonDrift. It waits, bounded, for another reconciler that is at it. The report
// is filled as far as the run came, with an error too.
func (r *Reconciler) Reconcile(ctx context.Context, saleID, reason string) (Report, error) {
	return r.reconcile(ctx, &run{
		Reconciler: r, saleID: saleID, forced: reason == ReasonForced || reason == ReasonDrift,
		report: Report{SaleID: saleID, Reason: reason, StartedAt: r.now().UTC()},
	})
}

func (r *Reconciler) reconcile(ctx context.Context, x *run) (Report, error) {
	err := x.do(ctx)
	if x.report.Result == ResultRestored {
		r.sales.loaded(x.sale)
	}
	if err != nil {
		err = fmt.Errorf("reconcile sale %s: %w", x.saleID, err)
		x.report.Error = err.Error()
		if x.report.Result == "" {
			x.report.Result = ResultFailed
		}
	}
	took := r.now().Sub(x.report.StartedAt)
	x.report.Duration = sale.Duration(took)
	r.observe.Run(x.report.Result, x.report.Reason, took)
	r.tell(&x.report)
	return x.report, err
}

// tell logs what a run did, once. Its error is the caller's to log.
func (r *Reconciler) tell(report *Report) {
	attrs := []any{
		"sale_id", report.SaleID, "reason", report.Reason, "result", report.Result, "found", report.Found.Why,
		"generation", report.Generation, "grants", report.Restored.Grants, "duration", time.Duration(report.Duration),
	}
	switch {
	case report.Violations.Count > 0:
		r.log.Error("sale was restored with violations", append(attrs, "violations", report.Violations.Count)...)
	case report.Result == ResultRestored && report.Found.LastGeneration == 0:
		r.log.Info("sale was loaded for the first time", attrs...)
	case report.Result == ResultRestored:
		r.log.Info("sale was restored", attrs...)
	default:
		r.log.Debug("sale was reconciled", attrs...)
	}
}

// probe tells why the sale's state in Redis can't be relied on, "" when it can.
func (r *Reconciler) probe(ctx context.Context, s *sale.Sale) (Found, stock.State, error) {
	var found Found
	fence, err := r.stream.LastFence(ctx, s.ID)
	if err != nil {
		return found, stock.State{}, err
	}
	found.LastGeneration, found.LastFence = fence.Generation, fence.Seq
	state, err := r.stock.State(ctx, s.ID, skus(s))
	var notLoaded *stock.NotLoaded
	switch {
	case errors.As(err, &notLoaded):
		found.Why = notLoaded.Reason
		return found, stock.State{}, nil
	case err != nil && strings.Contains(err.Error(), wrongType):
		found.Why = stock.ReasonDamaged
		return found, stock.State{}, nil
	case err != nil:
		return found, stock.State{}, err
	}
	found.Generation = state.Generation
	if state.Fence != fence.Seq || state.Generation != fence.Generation {
		found.Why = WhyFenceMoved
		return found, state, nil
	}
	found.Loaded = true
	return found, state, nil
}

// wrongType begins Redis's complaint about a key that was replaced by one of
// another type.
const wrongType = "WRONGTYPE"

func skus(s *sale.Sale) []string {
	out := make([]string, len(s.Items))
	for i, it := range s.Items {
		out[i] = it.SKU
	}
	return out
}
