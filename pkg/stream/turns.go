package stream

import (
	"context"
	"sync"
)

// turns lets those who publish to one sale go one after the other. Replicated
// streams refuse a second publish per fence subject while one is in flight;
// waiting here is cheaper than being refused there.
type turns struct {
	mu    sync.Mutex
	sales map[string]*turn // those that somebody has or waits for
}

type turn struct {
	free  chan struct{} // holds one token
	users int
}

// take waits for the sale's turn and returns what gives it back. The error is ctx's.
func (t *turns) take(ctx context.Context, saleID string) (giveBack func(), err error) {
	t.mu.Lock()
	if t.sales == nil {
		t.sales = map[string]*turn{}
	}
	mine := t.sales[saleID]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		mine.free <- struct{}{}
		t.sales[saleID] = mine
	}
	mine.users++
	t.mu.Unlock()
	select {
	case <-mine.free:
		return func() { mine.free <- struct{}{}; t.leave(saleID, mine) }, nil
	case <-ctx.Done():
		t.leave(saleID, mine)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(saleID string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(t.sales, saleID)
	}
}
