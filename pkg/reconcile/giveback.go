package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"golang.org/x/sync/errgroup"
)

// Releaser gives units back in Redis. A *stock.Store has it.
type Releaser interface {
	Release(ctx context.Context, g sale.Giveback) error
}

// GivebackLedger remembers which givebacks Redis has.
type GivebackLedger interface {
	MarkApplied(ctx context.Context, saleID string, ids []string) error
}

// RestockSignal tells the grab nodes that stock came back.
type RestockSignal interface {
	Restocked(saleID string) error
}

// Givebacks applies in Redis what the ledger has decided to give back. Whoever
// decides calls Return at once; the relay does it for what a crash left behind.
type Givebacks struct {
	stock  Releaser
	ledger GivebackLedger
	signal RestockSignal
}

// NewGivebacks returns the service.
func NewGivebacks(st Releaser, l GivebackLedger, signal RestockSignal) *Givebacks {
	return &Givebacks{stock: st, ledger: l, signal: signal}
}

// Return applies a giveback that is committed in the ledger. It may be repeated.
// On a sale that is not loaded it does nothing and is no error: the restore counts
// what the ledger decided, and the giveback stays unmarked until Redis has it.
func (g *Givebacks) Return(ctx context.Context, back sale.Giveback) error {
	applied, err := g.release(ctx, back)
	if err != nil || !applied {
		return err
	}
	return g.finish(ctx, back.SaleID, []string{back.ID})
}

// releases bounds the givebacks of one call that are on their way to Redis at a time.
const releases = 8

// ReturnAll is Return for many givebacks, of any sales: the ledger and the grab nodes
// are told once per sale. A sale that fails is left to the relay, and the others go on.
func (g *Givebacks) ReturnAll(ctx context.Context, all []sale.Giveback) error {
	bySale := make(map[string][]sale.Giveback)
	for _, back := range all {
		bySale[back.SaleID] = append(bySale[back.SaleID], back)
	}
	var failures []error
	for saleID, backs := range bySale {
		applied, err := g.releaseAll(ctx, saleID, backs)
		failures = append(failures, err)
		if len(applied) > 0 {
			failures = append(failures, g.finish(ctx, saleID, applied))
		}
	}
	return errors.Join(failures...)
}

// releaseAll returns the ids of those givebacks of a sale that Redis has now.
func (g *Givebacks) releaseAll(ctx context.Context, saleID string, backs []sale.Giveback) ([]string, error) {
	_ = g.signal.Restocked(saleID) // for the same reason as in release
	has := make([]bool, len(backs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(releases)
	for i := range backs {
		group.Go(func() (err error) {
			if ctx.Err() == nil {
				has[i], err = g.apply(ctx, backs[i])
			}
			return err
		})
	}
	err := group.Wait()
	var applied []string
	for i := range backs {
		if has[i] {
			applied = append(applied, backs[i].ID)
		}
	}
	return applied, err
}

// release reports whether Redis has the giveback now; false when the sale is not loaded.
func (g *Givebacks) release(ctx context.Context, back sale.Giveback) (applied bool, err error) {
	// The sold-out marks fall before the units are there, too: a mark that outlives
	// them would refuse whoever wins them and asks again. finish tells of a failure.
	_ = g.signal.Restocked(back.SaleID)
	return g.apply(ctx, back)
}

func (g *Givebacks) apply(ctx context.Context, back sale.Giveback) (applied bool, err error) {
	err = g.stock.Release(ctx, back)
	if _, ok := errors.AsType[*stock.NotLoaded](err); ok {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("give back %s: %w", back.ID, err)
	}
	return true, nil
}

// finish tells the grab nodes and the ledger what Redis has. Either is told
// whatever becomes of the other.
func (g *Givebacks) finish(ctx context.Context, saleID string, ids []string) error {
	signalled := g.signal.Restocked(saleID)
	if err := g.ledger.MarkApplied(ctx, saleID, ids); err != nil {
		return errors.Join(signalled, fmt.Errorf("mark givebacks of sale %s as applied: %w", saleID, err))
	}
	return signalled
}
