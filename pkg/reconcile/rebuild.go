package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// rebuild reads ledger and stream, folds them, writes the result to temporary
// keys and switches to it. Grants go from the ledger's rows to Redis as they are
// read.
func (x *run) rebuild(ctx context.Context, old oldState, target stock.Target) (Folded, error) {
	restore := x.stock.BeginRestore(x.saleID, x.cfg.Chunk)
	var folded Folded
	at, err := x.clock(ctx, &x.sale)
	if err == nil {
		folded, err = x.write(ctx, restore, old, target.Fence, at)
	}
	if err == nil {
		target.Remaining, target.Ends = folded.Remaining, stateEnds(&x.sale, at)
		err = x.timed(ctx, StepCommit, func(ctx context.Context) error { return restore.Commit(ctx, target) })
	}
	if err != nil {
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return Folded{}, errors.Join(err, restore.Abort(abort, skus(&x.sale)))
	}
	x.report.Violations = folded.Violations
	x.report.Restored = Restored{
		Grants: folded.Grants, FromStream: folded.FromStream, Buyers: int64(len(folded.Buyers)), Remaining: folded.Remaining,
	}
	x.report.Differences = old.compare(folded)
	return folded, nil
}

// write reads, folds and writes the temporary keys, all within the bound of one
// step.
func (x *run) write(ctx context.Context, restore *stock.Restore, old oldState, fence uint64, at time.Time) (Folded, error) {
	status, err := x.stream.Info(ctx)
	if err != nil {
		return Folded{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.StepTimeout)
	defer cancel()
	var folded Folded
	w := newWriter(ctx, restore, x.cfg.Chunk)
	err = x.ledger.ReadSnapshot(ctx, x.saleID, status.StreamID, status.FirstSeq, func(snap *ledger.Snapshot) error {
		x.sale = snap.Sale()
		floor, trusted, err := x.floorOf(ctx, snap, status)
		if err != nil {
			return err
		}
		x.report.Read = Read{Outboxes: x.report.Read.Outboxes, Progress: floor, StreamRegressed: !trusted}
		fold := NewFold(&x.sale, at, func(orderID string, record []byte) error {
			old.confirm(orderID)
			return w.add(entry{kind: grantEntry, id: orderID, record: record})
		})
		if err := x.readTail(ctx, fold, floor, fence); err != nil {
			return err
		}
		if err := x.readLedger(ctx, fold, snap); err != nil {
			return err
		}
		return x.timed(ctx, StepFold, func(context.Context) (err error) {
			folded, err = fold.Finish()
			return err
		})
	})
	if err != nil {
		return Folded{}, w.finish(err)
	}
	return folded, x.timed(ctx, StepWrite, func(context.Context) error { return w.finish(writeFolded(w, &x.sale, folded)) })
}

// readTail reads what the ledger may not have: the stream from the recorded
// progress, which is a lower bound, through the fence.
func (x *run) readTail(ctx context.Context, fold *Fold, progress, fence uint64) error {
	return x.timed(ctx, StepTail, func(ctx context.Context) error {
		return x.stream.ReadGrants(ctx, x.saleID, progress, fence, func(_ uint64, batch sale.Batch) error {
			x.report.Read.TailMessages++
			for i := range batch.Grants {
				fold.Loose(&batch.Grants[i])
			}
			return nil
		})
	})
}

func (x *run) readLedger(ctx context.Context, fold *Fold, snap *ledger.Snapshot) error {
	read := &x.report.Read
	return x.timed(ctx, StepLedger, func(context.Context) error {
		err := fold.ledger(snap, func(from origin, _ string, _ *sale.Order) {
			switch from {
			case fromOrder:
				read.Orders++
			case fromDeadLetter:
				read.DeadLetters++
			case fromSettled:
				read.Settled++
			}
		})
		read.Givebacks = int64(len(fold.givebacks))
		return err
	})
}

// writeFolded writes what is known only after the last grant.
func writeFolded(w *writer, s *sale.Sale, folded Folded) error {
	for _, l := range s.Limits {
		for window, at := range folded.Windows {
			if window.Limit != l.Name() {
				continue
			}
			if err := w.add(entry{kind: windowEntry, limit: l, at: at, zone: s.Location()}); err != nil {
				return err
			}
		}
	}
	for c, units := range folded.Used {
		if err := w.add(entry{kind: usedEntry, id: c.Subject, units: units, counter: c.Window}); err != nil {
			return err
		}
	}
	for user, h := range folded.Buyers {
		if err := w.add(entry{kind: buyerEntry, id: user, units: h.Units, order: h.OrderID}); err != nil {
			return err
		}
	}
	for id, units := range folded.Givebacks {
		if err := w.add(entry{kind: givebackEntry, id: id, units: units}); err != nil {
			return err
		}
	}
	return nil
}

// oldState is what Redis held before an attempt, for the report.
type oldState struct {
	raw     stock.Raw
	known   bool            // raw was read
	sampled int             // grants looked at
	unseen  map[string]bool // those of them the rebuilt state has not had yet
}

// sampleMax bounds how many old grants are compared one by one.
const sampleMax = 1000

// errSampled ends a scan that has seen enough.
var errSampled = errors.New("sample is complete")

// look reads what can be read of the old state. That it can't be read is no
// failure: it is being replaced because something is wrong with it.
func (x *run) look(ctx context.Context) oldState {
	raw, err := x.stock.Raw(ctx, x.saleID, skus(&x.sale))
	if err != nil {
		return oldState{}
	}
	old := oldState{raw: raw, known: true, unseen: make(map[string]bool)}
	x.report.Found.Generation = max(x.report.Found.Generation, raw.Generation)
	// The same: what was seen until an error is a sample too.
	_ = x.stock.Grants(ctx, x.saleID, func(orderID string, _ stock.Stored) error {
		if len(old.unseen) >= sampleMax {
			return errSampled
		}
		old.unseen[orderID] = true
		return nil
	})
	old.sampled = len(old.unseen)
	return old
}

func (o *oldState) confirm(orderID string) {
	if len(o.unseen) > 0 {
		delete(o.unseen, orderID)
	}
}

// compare returns nil when nothing was there to compare with.
func (o *oldState) compare(folded Folded) *Differences {
	if !o.known {
		return nil
	}
	d := Differences{
		Buyers: differ(o.raw.Buyers, int64(len(folded.Buyers))), Grants: differ(o.raw.Grants, folded.Grants),
		Givebacks: differ(o.raw.Applied, int64(len(folded.Givebacks))), Sampled: o.sampled,
	}
	for sku, after := range folded.Remaining {
		before, ok := o.raw.Remaining[sku]
		if !ok {
			before = missingKey
		}
		if before != after && len(d.Remaining) < maxDifferences {
			d.Remaining = append(d.Remaining, CountDifference{SKU: sku, Before: before, After: after})
		}
	}
	for id := range o.unseen {
		if len(d.VoidedOrders) == maxSamples {
			break
		}
		d.VoidedOrders = append(d.VoidedOrders, id)
	}
	return &d
}

// maxDifferences bounds the SKUs in a report.
const maxDifferences = 100

func differ(before, after int64) *CountDifference {
	if before == after {
		return nil
	}
	return &CountDifference{Before: before, After: after}
}
