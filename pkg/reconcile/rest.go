package reconcile

import (
	"context"
	"fmt"
	"maps"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// Redis and ledger can be compared exactly only at rest. To know that a sale is
// at rest, take in this order
//
//  1. its state in Redis,
//  2. a restPoint: its outboxes, then the end of the stream,
//  3. a snapshot of the ledger, and what moving says about it,
//  4. its state in Redis once more.
//
// When nothing moves and both states are the same, then every grant of that
// state is in the stream before the rest point, the ledger has written all of
// them, and every giveback of the snapshot is in the state.

// restPoint is the end of the stream and the outboxes that were not empty before.
type restPoint struct {
	stream  stream.Status
	waiting int // processes with batches on their outboxes
}

func (r *Reconciler) takeRestPoint(ctx context.Context, saleID string) (restPoint, error) {
	var p restPoint
	processes, err := r.stock.Outboxes(ctx, saleID)
	if err != nil {
		return p, err
	}
	for process := range processes {
		batches, err := r.stock.Outbox(ctx, saleID, process, 1)
		if err != nil {
			return p, err
		}
		p.waiting += len(batches)
	}
	p.stream, err = r.stream.Info(ctx)
	return p, err
}

// moving lists what keeps a snapshot that was taken after the rest point from
// being compared with Redis.
func (r *Reconciler) moving(ctx context.Context, saleID string, p restPoint, floor uint64) ([]string, error) {
	var moving []string
	if p.waiting > 0 {
		moving = append(moving, fmt.Sprintf("%d grab processes have batches on their outboxes", p.waiting))
	}
	if floor < p.stream.LastSeq {
		moving = append(moving, fmt.Sprintf("the ledger has written the stream through %d of %d", floor, p.stream.LastSeq))
	}
	// Ordered by sale and id: the first one behind "the sale, no id" is of the
	// sale if there is any.
	next, err := r.ledger.UnappliedGivebacks(ctx, &sale.Giveback{SaleID: saleID}, 1)
	if err != nil {
		return nil, err
	}
	if len(next) > 0 && next[0].SaleID == saleID {
		moving = append(moving, fmt.Sprintf("giveback %s is not known to be applied in Redis", next[0].ID))
	}
	return moving, nil
}

// sameState reports whether nothing happened to a sale between two looks: every
// grant, giveback and restore changes one of these.
func sameState(a, b stock.State) bool {
	return a.Era == b.Era && a.Generation == b.Generation && a.Fence == b.Fence && a.Buyers == b.Buyers &&
		a.Grants == b.Grants && a.Applied == b.Applied && maps.Equal(a.Remaining, b.Remaining)
}

// books is what the ledger says about a sale.
type books struct {
	floor uint64
	items []ledger.ItemTotals
	// remaining is what Redis must have left at rest.
	remaining map[string]int64
	// whole is the fold of all orders, nil when only units were counted.
	whole *Folded
}

// readBooks reads the ledger's side; whole reads all orders.
func (r *Reconciler) readBooks(ctx context.Context, saleID string, at restPoint, whole bool) (books, error) {
	var b books
	err := r.ledger.ReadSnapshot(ctx, saleID, at.stream.StreamID, at.stream.FirstSeq, func(snap *ledger.Snapshot) error {
		b.items = snap.Items()
		var err error
		if b.floor, _, err = r.floorOf(ctx, snap, at.stream); err != nil {
			return err
		}
		if !whole {
			return b.countUnits(snap)
		}
		s := snap.Sale()
		fold := NewFold(&s, r.now(), func(string, []byte) error { return nil })
		if err := fold.ledger(snap, func(origin, string, *sale.Order) {}); err != nil {
			return err
		}
		folded, err := fold.Finish()
		b.remaining, b.whole = folded.Remaining, &folded
		return err
	})
	return b, err
}

// countUnits takes what is left from the items' rows: stock, minus what orders
// and open dead letters hold.
func (b *books) countUnits(snap *ledger.Snapshot) error {
	b.remaining = make(map[string]int64, len(b.items))
	for _, it := range b.items {
		b.remaining[it.SKU] = sale.Unlimited
		if it.Stock != sale.Unlimited {
			b.remaining[it.SKU] = it.Stock - it.Sold
		}
	}
	return snap.DeadLetters(func(d *ledger.DeadLetter) error {
		// Of a message that can't be read, nobody knows what it holds.
		if g, err := d.Grant(); err == nil {
			for _, l := range g.Lines {
				if left, ok := b.remaining[l.SKU]; ok && left != sale.Unlimited {
					b.remaining[l.SKU] -= l.Quantity
				}
			}
		}
		return nil
	})
}

// differ adds what the state has more, or less, than the books.
func (b *books) differ(state stock.State, found drift) {
	for sku, left := range b.remaining {
		if by := state.Remaining[sku] - left; by != 0 {
			found[DriftRemaining+":"+sku] = by
		}
	}
	if b.whole == nil {
		return
	}
	for kind, by := range map[string]int64{
		DriftGrants:    state.Grants - b.whole.Grants,
		DriftBuyers:    state.Buyers - int64(len(b.whole.Buyers)),
		DriftGivebacks: state.Applied - int64(len(b.whole.Givebacks)),
	} {
		if by != 0 {
			found[kind] = by
		}
	}
}
