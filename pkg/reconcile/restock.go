package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// ErrStockNotSet says that a change of an item's stock did not take place: the sale
// is not kept in Redis any more, or other reconcilers were at it for all the time.
var ErrStockNotSet = errors.New("the stock was not changed")

// restock is a change from or to unlimited stock that a run carries out.
type restock struct {
	change  ledger.StockChange
	set     ledger.StockSet
	done    bool  // the ledger has it
	refused error // the ledger will never have it
}

// SetStock makes the stock of an item unlimited, or gives unlimited stock a bound, by
// a run: nothing in Redis counts what is sold of unlimited stock, so the new number
// must come from the ledger, at a moment when nothing is on its way there unseen. The run
// ends the generation first; then the grants that were made are those of the ledger
// and of the stream up to the fence; the bound is at least their units. Selling
// stops meanwhile, for as long as a restore takes.
//
// It answers what ledger.SetStock answers, and ErrStockNotSet. After any other error the
// change may be in the ledger: then the next restore brings it into Redis.
func (r *Reconciler) SetStock(ctx context.Context, c ledger.StockChange) (ledger.StockSet, error) {
	wish := &restock{change: c}
	report, err := r.reconcile(ctx, &run{
		Reconciler: r, saleID: c.SaleID, forced: true, restock: wish,
		report: Report{SaleID: c.SaleID, Reason: ReasonStock, StartedAt: r.now().UTC()},
	})
	switch {
	case err != nil:
		return wish.set, err
	case wish.refused != nil:
		return ledger.StockSet{}, wish.refused
	case !wish.done:
		return ledger.StockSet{}, fmt.Errorf("%w: the run ended as %s", ErrStockNotSet, report.Result)
	}
	return wish.set, nil
}

// pending reports whether the run still has to change a stock.
func (w *restock) pending() bool { return w != nil && !w.done && w.refused == nil }

// restockAt carries the change out behind a fence. What the ledger refuses for good does
// not keep the sale closed.
func (x *run) restockAt(ctx context.Context, fence stream.Fence) error {
	w := x.restock
	if !w.pending() {
		return nil
	}
	loose := make(ledger.Grants)
	if w.change.Stock != sale.Unlimited {
		if err := x.readLoose(ctx, fence, loose); err != nil {
			return err
		}
	}
	set, err := x.ledger.SetStock(ctx, w.change, fence.Generation, loose)
	switch {
	case err == nil:
		w.set, w.done = set, true
	case refusesStock(err):
		w.refused = err
	default:
		return err
	}
	return nil
}

// refusesStock reports whether asking again would get the same answer.
func refusesStock(err error) bool {
	var field *sale.FieldError
	var status *ledger.SaleStatusError
	return errors.As(err, &field) || errors.As(err, &status) || errors.Is(err, ledger.ErrNotFound) ||
		errors.Is(err, ledger.ErrUnknownItem) || errors.Is(err, ledger.ErrLimited) || errors.Is(err, ledger.ErrRefReused)
}

// readLoose reads what was granted of the item and may have no order yet. The ledger
// adds its dead letters by itself.
func (x *run) readLoose(ctx context.Context, fence stream.Fence, loose ledger.Grants) error {
	status, err := x.stream.Info(ctx)
	if err != nil {
		return err
	}
	var floor uint64
	err = x.ledger.ReadSnapshot(ctx, x.saleID, status.StreamID, status.FirstSeq, func(snap *ledger.Snapshot) (err error) {
		floor, _, err = x.floorOf(ctx, snap, status)
		return err
	})
	if err != nil {
		return err
	}
	return x.stream.ReadGrants(ctx, x.saleID, floor, fence.Seq, func(_ uint64, batch sale.Batch) error {
		for i := range batch.Grants {
			loose.Add(&batch.Grants[i], x.restock.change.SKU)
		}
		return nil
	})
}
