package reconcile

import (
	"context"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// The state of a quota is in Redis only while it is used, and for one window at a
// time: it is loaded by the first deduction of a window, at the request of whoever
// makes it, and leaves when the window ends. So neither Redis nor a load grows with
// the years. Everything else is as for any sale.

// rememberedSince is the first moment of which a state that is loaded at now knows the
// orders: of a quota those of its window and of every window that began to end within
// stock.UsedGrace before, so that keys go on naming their orders over the window's end
// and a clock that is slow counts in the right place. Of a sale it is ever: the zero time.
func rememberedSince(s *sale.Sale, now time.Time) time.Time {
	if !s.Quota {
		return time.Time{}
	}
	w, zone := s.Limits[0].Window, s.Location()
	return w.Start(w.Start(now, zone).Add(-stock.UsedGrace), zone)
}

// stateEnds is when a state that is loaded at now leaves Redis; the zero time is never.
func stateEnds(s *sale.Sale, now time.Time) time.Time {
	if !s.Quota {
		return time.Time{}
	}
	return s.Limits[0].Window.End(now, s.Location())
}

// clock is the time by which a state is loaded and compared. A quota's leaves Redis by
// the clock of the server: where ours is behind that, it would leave at once.
func (r *Reconciler) clock(ctx context.Context, s *sale.Sale) (time.Time, error) {
	now := r.now()
	if !s.Quota {
		return now, nil
	}
	at, err := r.stock.Clock(ctx, s.ID)
	if err != nil || at.Before(now) {
		return now, err
	}
	return at, nil
}

// countedElsewhere reports whether every window that a giveback takes units off has left
// Redis for good.
func countedElsewhere(g *sale.Giveback, s *sale.Sale, now time.Time) bool {
	for _, c := range g.Counts {
		for _, l := range s.Limits {
			// The names of a window's periods sort like the periods.
			if l.Name() == c.Limit && c.Period >= l.Window.Period(rememberedSince(s, now), s.Location()) {
				return false
			}
		}
	}
	return true
}
