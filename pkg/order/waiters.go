package order

import "sync"

// waiters lets requests wait for orders to be written. The worker of this
// process tells them at once; what other processes write is found by polling.
type waiters struct {
	mu      sync.Mutex
	max     int
	count   int
	byOrder map[string]*waitGroup
}

// waitGroup is the requests that wait for one order.
type waitGroup struct {
	written chan struct{} // closed when the order is written
	members int
}

func newWaiters(limit int) *waiters {
	return &waiters{max: limit, byOrder: make(map[string]*waitGroup)}
}

// join begins to wait for an order. written is closed when this process writes
// it; leave must be called once. ok is false when too many wait already.
func (w *waiters) join(orderID string) (written <-chan struct{}, leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.max {
		return nil, nil, false
	}
	w.count++
	group := w.byOrder[orderID]
	if group == nil {
		group = &waitGroup{written: make(chan struct{})}
		w.byOrder[orderID] = group
	}
	group.members++
	return group.written, func() { w.leave(orderID, group) }, true
}

func (w *waiters) leave(orderID string, group *waitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	group.members--
	if group.members == 0 && w.byOrder[orderID] == group {
		delete(w.byOrder, orderID)
	}
}

// tell wakes those who wait for an order that is now in the ledger.
func (w *waiters) tell(orderID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if group := w.byOrder[orderID]; group != nil {
		close(group.written)
		delete(w.byOrder, orderID)
	}
}

// waiting is how many requests wait.
func (w *waiters) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}
