package reconcile

import (
	"context"
	"errors"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// compare looks for drift. It reads Redis between two readings of the ledger.
//
// What is left in Redis can never exceed the stock, minus what the ledger had
// granted before Redis was read, plus what it had got back after: that holds in
// the middle of a storm. Equality is demanded only at rest; see rest.go.
func (r *Reconciler) compare(ctx context.Context, s *sale.Sale, last audited) (audited, error) {
	now := audited{sound: last.sound, soundAt: last.soundAt}
	at, err := r.takeRestPoint(ctx, s.ID)
	if err != nil {
		return now, err
	}
	first, err := r.readBooks(ctx, s.ID, at, false)
	if err != nil {
		return now, err
	}
	state, err := r.stock.State(ctx, s.ID, skus(s))
	if err != nil || sameState(last.sound, state) {
		return now, butNotLoaded(err)
	}
	if at, err = r.takeRestPoint(ctx, s.ID); err != nil {
		return now, err
	}
	due := r.now().Sub(last.soundAt) >= r.cfg.DeepAuditInterval
	books, err := r.readBooks(ctx, s.ID, at, due)
	if err != nil {
		return now, err
	}
	now.drift = surplus(state, first.items, books.items)
	moving, err := r.moving(ctx, s.ID, at, books.floor)
	if err != nil || len(moving) > 0 {
		return now, err
	}
	again, err := r.stock.State(ctx, s.ID, skus(s))
	if err != nil || !sameState(state, again) {
		return now, butNotLoaded(err)
	}
	books.differ(state, now.drift)
	if due && len(now.drift) == 0 {
		now.sound, now.soundAt = state, r.now()
	}
	return now, nil
}

// butNotLoaded drops "not loaded": another run has closed the sale meanwhile, and
// the next audit sees what became of it.
func butNotLoaded(err error) error {
	if _, ok := errors.AsType[*stock.NotLoaded](err); ok {
		return nil
	}
	return err
}

// surplus finds items of which Redis has more left than it may. An item whose
// stock was changed between the two readings is left for the next audit.
func surplus(state stock.State, before, after []ledger.ItemTotals) drift {
	found := make(drift)
	for i, a := range after {
		if i >= len(before) || before[i].SKU != a.SKU || before[i].Stock != a.Stock || a.Stock == sale.Unlimited {
			continue
		}
		if over := state.Remaining[a.SKU] - (a.Stock - before[i].Granted + a.Returned); over > 0 {
			found[DriftSurplus+":"+a.SKU] = over
		}
	}
	return found
}
