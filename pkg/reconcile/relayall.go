package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// RelayAll looks once at every watched sale for outboxes whose process is gone,
// and at the ledger for givebacks that Redis is not known to have. It goes on with
// the next one whatever becomes of the others.
func (r *Reconciler) RelayAll(ctx context.Context) error {
	sales, err := r.watchedSales(ctx)
	if err != nil {
		return err
	}
	var failures []error
	loadable := make(map[string]bool, len(sales))
	for i := range sales {
		s := &sales[i]
		loadable[s.ID] = r.cfg.loadable(s, r.now())
		relayed, err := r.relay.Orphans(ctx, s.ID)
		r.observe.Relayed(relayed.Published)
		if relayed.Published+relayed.Fenced > 0 {
			r.log.Info("outboxes of dead grab processes were published", "sale_id", s.ID,
				"published", relayed.Published, "fenced", relayed.Fenced)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("relay outboxes of sale %s: %w", s.ID, err))
		}
	}
	return errors.Join(append(failures, r.relayGivebacks(ctx, loadable))...)
}

// relayFailuresMax ends a look at the givebacks: so many failures are not about
// the single one.
const relayFailuresMax = 10

// relayGivebacks applies what a crash, or a sale that was not loaded, left
// unapplied. What Redis will never hold again, because its sale is over, is marked
// as applied: nothing can count it any more but a restore, which reads the ledger.
func (r *Reconciler) relayGivebacks(ctx context.Context, loadable map[string]bool) error {
	var failures []error
	var after *sale.Giveback
	closed := make(map[string]bool) // sales found not loaded in this look
	for len(failures) < relayFailuresMax {
		page, err := r.ledger.UnappliedGivebacks(ctx, after, r.cfg.RelayPage)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		done := make(map[string][]string)
		for i := range page {
			g := &page[i]
			applied, err := false, error(nil)
			if !closed[g.SaleID] {
				applied, err = r.givebacks.release(ctx, *g)
			}
			switch {
			case err != nil:
				failures = append(failures, err)
			case applied:
				r.observe.Relayed(1)
				done[g.SaleID] = append(done[g.SaleID], g.ID)
			default:
				closed[g.SaleID] = true
				if !loadable[g.SaleID] {
					done[g.SaleID] = append(done[g.SaleID], g.ID)
				}
			}
		}
		for saleID, ids := range done {
			if err := r.givebacks.finish(ctx, saleID, ids); err != nil {
				failures = append(failures, err)
			}
		}
		if len(page) < r.cfg.RelayPage {
			break
		}
		after = &page[len(page)-1]
	}
	return errors.Join(failures...)
}
