package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"golang.org/x/sync/errgroup"
)

// auditParallel bounds how many sales are audited at a time.
const auditParallel = 4

// The kinds of drift an audit finds.
const (
	// DriftRemaining: at rest, Redis has other units left than the ledger.
	DriftRemaining = "remaining"
	// DriftSurplus: even in motion, Redis has more units left than the ledger
	// could ever allow.
	DriftSurplus = "surplus"
	// DriftGrants: at rest, Redis knows another number of grants than the ledger.
	DriftGrants = "grants"
	// DriftBuyers: at rest, Redis has another number of buyers than the ledger.
	DriftBuyers = "buyers"
	// DriftGivebacks: at rest, Redis has applied another number of givebacks.
	DriftGivebacks = "givebacks"
)

// DriftKinds lists every kind, for metrics.
var DriftKinds = []string{DriftRemaining, DriftSurplus, DriftGrants, DriftBuyers, DriftGivebacks}

// audits remembers, per sale, what the last audit found.
type audits struct {
	mu    sync.Mutex
	sales map[string]audited
}

type audited struct {
	drift drift
	// sound is the last state that agreed with the whole ledger at rest, and
	// when. While Redis still has it, there is nothing to compare.
	sound   stock.State
	soundAt time.Time
	freed   bool // the sale is over and holds no memory any more
}

// drift is what disagreed, by kind and, for units, SKU: "kind" or "kind:sku".
// The value is Redis minus ledger.
type drift map[string]int64

// persists reports whether something of it was there an audit ago.
func (d drift) persists(before drift) bool {
	for what := range d {
		if _, ok := before[what]; ok {
			return true
		}
	}
	return false
}

// Audit looks once at every sale: a loadable one that is not loaded is restored,
// one whose counts disagree with the ledger twice in a row is rebuilt, and the memory
// of one that is over is freed. It looks at each sale whatever becomes of the others.
func (r *Reconciler) Audit(ctx context.Context) error {
	sales, err := r.sales.read(ctx, r.ledger, r.now())
	if err != nil {
		return err
	}
	failures := make([]error, len(sales))
	var group errgroup.Group
	group.SetLimit(auditParallel)
	for i := range sales {
		group.Go(func() error {
			failures[i] = r.audit(ctx, &sales[i])
			return nil
		})
	}
	_ = group.Wait() // the failures are kept apart
	return errors.Join(failures...)
}

func (r *Reconciler) audit(ctx context.Context, s *sale.Sale) error {
	if s.Quota {
		return r.relayOrphans(ctx, s.ID) // it is loaded by who uses it, see quota.go
	}
	if !r.cfg.loadable(s, r.now()) {
		return r.free(ctx, s)
	}
	found, _, err := r.probe(ctx, s)
	if err != nil {
		return fmt.Errorf("audit sale %s: %w", s.ID, err)
	}
	if !found.Loaded {
		_, err := r.Reconcile(ctx, s.ID, ReasonAudit)
		return err
	}
	before := r.audits.of(s.ID)
	now, err := r.compare(ctx, s, before)
	if err != nil {
		return fmt.Errorf("audit sale %s: %w", s.ID, err)
	}
	for what := range now.drift {
		kind, _, _ := strings.Cut(what, ":")
		r.observe.Drift(kind)
	}
	if !now.drift.persists(before.drift) {
		r.audits.keep(s.ID, now)
		return nil
	}
	r.audits.keep(s.ID, audited{})
	r.log.Error("redis and ledger disagree: the sale is rebuilt", "sale_id", s.ID, "drift", now.drift)
	_, err = r.Reconcile(ctx, s.ID, ReasonDrift)
	return err
}

// free takes a sale that is over out of Redis, once per life of this process.
func (r *Reconciler) free(ctx context.Context, s *sale.Sale) error {
	if r.audits.of(s.ID).freed {
		return nil
	}
	if _, err := r.relay.Orphans(ctx, s.ID); err != nil {
		return err
	}
	if err := r.stock.Drop(ctx, s.ID, skus(s)); err != nil {
		return err
	}
	r.audits.keep(s.ID, audited{freed: true})
	return nil
}

func (a *audits) of(saleID string) audited {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sales[saleID]
}

func (a *audits) keep(saleID string, found audited) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sales == nil {
		a.sales = make(map[string]audited)
	}
	a.sales[saleID] = found
}
