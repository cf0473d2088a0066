package order

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// waiters lets requests wait for orders to be written, or to change. What happens in
// this process is told at once; what others do is found by polling.
type waiters struct {
	mu      sync.Mutex
	max     int
	count   int
	gauge   prometheus.Gauge // the count
	byOrder map[string]*waitGroup
}

// waitGroup is the requests that wait for one order.
type waitGroup struct {
	told    chan struct{} // closed when the order is written or has changed
	members int
}

func newWaiters(limit int, gauge prometheus.Gauge) *waiters {
	return &waiters{max: limit, gauge: gauge, byOrder: make(map[string]*waitGroup)}
}

// waiter is one request that waits for an order.
type waiter struct {
	all     *waiters
	orderID string
	group   *waitGroup
}

// join begins to wait for an order; leave must be called once. ok is false when too
// many wait already.
func (w *waiters) join(orderID string) (one *waiter, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.max {
		return nil, false
	}
	w.count++
	w.gauge.Inc()
	return &waiter{all: w, orderID: orderID, group: w.group(orderID)}, true
}

// group adds a member to the group of an order.
func (w *waiters) group(orderID string) *waitGroup {
	group := w.byOrder[orderID]
	if group == nil {
		group = &waitGroup{told: make(chan struct{})}
		w.byOrder[orderID] = group
	}
	group.members++
	return group
}

// told is closed when this process has written or changed the order since join or again.
func (o *waiter) told() <-chan struct{} { return o.group.told }

// again begins to wait for the next change, after told was closed.
func (o *waiter) again() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.group = o.all.group(o.orderID)
}

// leave ends the wait.
func (o *waiter) leave() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.all.count--
	o.all.gauge.Dec()
	o.group.members--
	if o.group.members == 0 && o.all.byOrder[o.orderID] == o.group {
		delete(o.all.byOrder, o.orderID)
	}
}

// tell wakes those who wait for an order that was written or has changed.
func (w *waiters) tell(orderID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if group := w.byOrder[orderID]; group != nil {
		close(group.told)
		delete(w.byOrder, orderID)
	}
}
