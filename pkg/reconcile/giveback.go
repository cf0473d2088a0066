package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
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

// release reports whether Redis has the giveback now; false when the sale is not loaded.
func (g *Givebacks) release(ctx context.Context, back sale.Giveback) (applied bool, err error) {
	// The sold-out marks fall before the units are there, too: a mark that outlives
	// them would refuse whoever wins them and asks again. finish tells of a failure.
	_ = g.signal.Restocked(back.SaleID)
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
