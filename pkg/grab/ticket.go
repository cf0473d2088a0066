package grab

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// ticket is one grab on its way: queued, decided, published, answered once.
type ticket struct {
	ctx      context.Context
	grant    sale.Grant
	record   []byte
	answered atomic.Bool
	answer   Answer        // written before done
	done     chan struct{} // one token; never blocks the one who answers
}

func newTicket(ctx context.Context, g sale.Grant) *ticket {
	// Milliseconds is what a record keeps.
	g.At = g.At.UTC().Truncate(time.Millisecond)
	if !g.ExpiresAt.IsZero() {
		g.ExpiresAt = g.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	t := &ticket{ctx: ctx, grant: g, done: make(chan struct{}, 1)}
	t.record = sale.AppendGrant(nil, &t.grant)
	return t
}

// reply answers the ticket; only the first answer counts.
func (t *ticket) reply(a Answer) {
	if t.answered.CompareAndSwap(false, true) {
		t.answer = a
		t.done <- struct{}{}
	}
}

func (t *ticket) ask() stock.Ask { return stock.Ask{Grant: &t.grant, Record: t.record} }

// granted is the answer to a grab that holds a grant.
func granted(o sale.Outcome, g *sale.Grant, replayed bool) Answer {
	return Answer{Outcome: o, OrderID: g.OrderID, Replayed: replayed, Lines: g.Lines, ExpiresAt: g.ExpiresAt}
}
