package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// RelayAll looks once at every loadable sale for outboxes whose process is gone,
// and at the ledger for givebacks that Redis is not known to have. It goes on with
// the next one whatever becomes of the others.
func (r *Reconciler) RelayAll(ctx context.Context) error {
	sales, err := r.sales.recent(ctx, r.ledger, r.now(), r.cfg.AuditInterval)
	if err != nil {
		return err
	}
	var failures []error
	byID := make(map[string]*sale.Sale, len(sales))
	for i := range sales {
		s := &sales[i]
		byID[s.ID] = s
		if s.Quota || !r.cfg.loadable(s, r.now()) {
			continue // there may be thousands of quotas: Audit looks at their outboxes
		}
		if err := r.relayOrphans(ctx, s.ID); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(append(failures, r.relayGivebacks(ctx, byID))...)
}

// relayOrphans publishes the outboxes of a sale whose grab processes are dead, or have not yet
// renewed the lease that they lost with Redis: then both publish, and the stream keeps one.
func (r *Reconciler) relayOrphans(ctx context.Context, saleID string) error {
	relayed, err := r.relay.Orphans(ctx, saleID)
	r.observe.Relayed(relayed.Published)
	if relayed.Published+relayed.Fenced > 0 {
		r.log.Info("outboxes without a live owner were published", "sale_id", saleID,
			"published", relayed.Published, "fenced", relayed.Fenced)
	}
	if err != nil {
		return fmt.Errorf("relay outboxes of sale %s: %w", saleID, err)
	}
	return nil
}

// setback is why the givebacks of a sale can't be applied in this look.
type setback int

const (
	notLoaded setback = iota + 1
	failing           // Redis or the ledger answered with an error
)

// relayGivebacks applies what a crash, or a sale that was not loaded, left
// unapplied. A sale that fails is left for the next look, and the others go on.
func (r *Reconciler) relayGivebacks(ctx context.Context, sales map[string]*sale.Sale) error {
	var failures []error
	var after *sale.Giveback
	setbacks := make(map[string]setback) // by sale, of this look
	for {
		page, err := r.ledger.UnappliedGivebacks(ctx, after, r.cfg.RelayPage)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		done := make(map[string][]string)
		for i := range page {
			g := &page[i]
			if setbacks[g.SaleID] == failing {
				continue
			}
			settled, err := r.settle(ctx, g, sales[g.SaleID], setbacks)
			if err != nil {
				setbacks[g.SaleID] = failing
				failures = append(failures, fmt.Errorf("relay givebacks of sale %s: %w", g.SaleID, err))
			}
			if settled {
				done[g.SaleID] = append(done[g.SaleID], g.ID)
			}
		}
		for saleID, ids := range done {
			if err := r.givebacks.finish(ctx, saleID, ids); err != nil {
				setbacks[saleID] = failing
				failures = append(failures, err)
			}
		}
		if len(page) < r.cfg.RelayPage || ctx.Err() != nil {
			return errors.Join(failures...)
		}
		after = &page[len(page)-1]
	}
}

// settle reports whether nothing is left to be done for a giveback: Redis has it,
// or will never hold what it gives back, because the sale is over or has no such
// item. Then only a restore can count it, and that reads the ledger.
func (r *Reconciler) settle(ctx context.Context, g *sale.Giveback, s *sale.Sale, setbacks map[string]setback) (bool, error) {
	if s == nil { // newer than the list
		found, err := r.ledger.GetSale(ctx, g.SaleID)
		if err != nil {
			return false, err
		}
		s = &found
	}
	if !allItems(s, g.Lines) {
		return true, nil
	}
	if setbacks[s.ID] != notLoaded {
		applied, err := r.givebacks.release(ctx, *g)
		if err != nil {
			return false, err
		}
		if applied {
			r.observe.Relayed(1)
			return true, nil
		}
		setbacks[s.ID] = notLoaded
	}
	if s.Quota {
		return countedElsewhere(g, s, r.now()), nil
	}
	return !r.cfg.loadable(s, r.now()), nil
}

func allItems(s *sale.Sale, lines []sale.Line) bool {
	for _, l := range lines {
		if _, ok := s.Item(l.SKU); !ok {
			return false
		}
	}
	return true
}
