package reconcile

import (
	"context"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"golang.org/x/sync/errgroup"
)

// writer sends a rebuilt state to Redis while the rest of it is still being read
// from the ledger: the two take turns otherwise, each waiting for the other.
type writer struct {
	restore *stock.Restore
	chunk   int
	group   *errgroup.Group
	ctx     context.Context // ends when a write fails
	full    chan []entry
	filling []entry
}

// writerBacklog is how many chunks may wait to be written.
const writerBacklog = 4

// entry is one thing of a rebuilt state.
type entry struct {
	kind   entryKind
	id     string // of the grant or giveback, the user, or the subject of a count
	record []byte // of a grant
	units  int64  // of a buyer, giveback or count
	order  string // the last one of a buyer

	// Of a window, and of what a subject has used in one.
	limit   sale.Limit
	at      time.Time
	zone    *time.Location
	counter Window
}

type entryKind byte

const (
	grantEntry entryKind = iota
	buyerEntry
	givebackEntry
	windowEntry
	usedEntry
)

func newWriter(ctx context.Context, restore *stock.Restore, chunk int) *writer {
	w := &writer{restore: restore, chunk: chunk, full: make(chan []entry, writerBacklog)}
	w.group, w.ctx = errgroup.WithContext(ctx)
	w.group.Go(func() error {
		for entries := range w.full {
			for i := range entries {
				if err := w.write(&entries[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return w
}

func (w *writer) write(e *entry) error {
	switch e.kind {
	case buyerEntry:
		return w.restore.Buyer(w.ctx, e.id, e.units, e.order)
	case givebackEntry:
		return w.restore.Giveback(w.ctx, e.id, e.units)
	case windowEntry:
		w.restore.Window(e.limit, e.at, e.zone)
		return nil
	case usedEntry:
		return w.restore.Used(w.ctx, e.counter.Limit, e.counter.Period, e.id, e.units)
	default:
		return w.restore.Grant(w.ctx, e.id, e.record)
	}
}

// add hands one entry over. It fails when an earlier one could not be written;
// finish then tells why.
func (w *writer) add(e entry) error {
	if w.filling == nil {
		w.filling = make([]entry, 0, w.chunk)
	}
	w.filling = append(w.filling, e)
	if len(w.filling) < w.chunk {
		return nil
	}
	return w.send()
}

func (w *writer) send() error {
	select {
	case w.full <- w.filling:
		w.filling = nil
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// finish waits until everything is written, or the writing has failed. No add
// may follow. What is left over is not sent when the reading has failed.
func (w *writer) finish(read error) error {
	if read == nil && len(w.filling) > 0 {
		read = w.send()
	}
	close(w.full)
	if err := w.group.Wait(); err != nil {
		return err
	}
	return read
}
