package admin

import (
	"context"
	"errors"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// setStock makes the stock of an item unlimited, or gives unlimited stock a bound.
// Neither is a grant or something that comes back: Redis does not count what is sold of
// unlimited stock. A reconciler's run does it, between two generations of the sale.
func (a *API) setStock(ctx context.Context, s sale.Sale, item sale.Item, ask *adjustment) (answer, error) {
	known, err := a.Ledger.StockSet(ctx, ask.saleID, ask.sku, ask.ref)
	if err == nil {
		return a.stockSetBefore(ctx, s, ask, known)
	}
	if !errors.Is(err, ledger.ErrNotFound) {
		return answer{}, err
	}
	if _, err := a.Ledger.AdjustmentRecord(ctx, ask.saleID, ask.sku, ask.ref); !errors.Is(err, ledger.ErrNotFound) {
		if err == nil {
			err = keyReused()
		}
		return answer{}, err
	}
	switch {
	case s.Status != sale.StatusApproved && s.Status != sale.StatusPaused:
		return answer{}, wrongState(s.Status, "the stock of a sale that is "+string(s.Status)+" can't be changed")
	case s.Phase(time.Now()) == sale.PhaseEnded:
		return answer{}, wrongState(s.Status, "the sale is over")
	case item.Stock == *ask.Stock:
		return ok(ask.stockAnswer(ledger.StockSet{Before: item.Stock, After: item.Stock, Asked: item.Stock})), nil
	case item.Stock != sale.Unlimited && *ask.Stock != sale.Unlimited:
		return answer{}, stockLimited()
	}
	return a.restock(ctx, ask)
}

func (a *API) restock(ctx context.Context, ask *adjustment) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReconcileTimeout)
	defer cancel()
	set, err := a.Restocker.SetStock(ctx, ledger.StockChange{
		SaleID: ask.saleID, SKU: ask.sku, Stock: *ask.Stock, Ref: ask.ref, Actor: ask.actor, Reason: ask.Reason,
	})
	switch {
	case errors.Is(err, ledger.ErrLimited):
		return answer{}, stockLimited()
	case errors.Is(err, ledger.ErrRefReused):
		return answer{}, keyReused()
	case errors.Is(err, ledger.ErrUnknownItem):
		return answer{}, itemNotFound()
	case errors.Is(err, reconcile.ErrStockNotSet):
		return answer{}, web.Unavailable(web.CodeUnavailable, "a reconciler is busy with the sale; try again", retryAfter)
	case err != nil:
		return answer{}, err
	}
	return ok(ask.stockAnswer(set)), nil
}

// stockSetBefore answers from the books. The first attempt may have come no further
// than the ledger.
func (a *API) stockSetBefore(ctx context.Context, s sale.Sale, ask *adjustment, set ledger.StockSet) (answer, error) {
	if set.Asked != *ask.Stock || set.Reason != ask.Reason {
		return answer{}, keyReused()
	}
	if !a.stateOf(ctx, s).loaded() {
		a.load(ctx, s.ID, reconcile.ReasonOperator)
	}
	return ok(ask.stockAnswer(set)), nil
}

func (a *adjustment) stockAnswer(set ledger.StockSet) adjusted {
	return adjusted{
		State: stateApplied, AdjustmentID: a.ref, SaleID: a.saleID, SKU: a.sku, Requested: *a.Stock, Applied: set.After,
		ClampedBy: set.After - set.Asked, StockBefore: &set.Before, StockAfter: &set.After, Replayed: set.Replayed,
	}
}

// unusedForStock refuses the key of a change from or to unlimited.
func (a *API) unusedForStock(ctx context.Context, ask *adjustment) error {
	_, err := a.Ledger.StockSet(ctx, ask.saleID, ask.sku, ask.ref)
	switch {
	case err == nil:
		return keyReused()
	case errors.Is(err, ledger.ErrNotFound):
		return nil
	}
	return err
}
