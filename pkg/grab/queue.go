package grab

import "sync"

// queue holds the grabs of one sale that wait for the next script call, in order
// of arrival.
type queue struct {
	max int
	// filled has a token when something was put into an empty queue.
	filled chan struct{}

	mu      sync.Mutex
	tickets []*ticket
	head    int // tickets before it were taken
	closed  bool
}

func newQueue(most int) *queue {
	return &queue{max: most, filled: make(chan struct{}, 1)}
}

// put appends a ticket, or says why not: the queue is full, or closed.
func (q *queue) put(t *ticket) (refused string) {
	q.mu.Lock()
	waiting := len(q.tickets) - q.head
	if waiting >= q.max || q.closed {
		defer q.mu.Unlock()
		if q.closed {
			return retired
		}
		return "too many grabs are waiting for this sale"
	}
	if q.head > 0 && len(q.tickets) == cap(q.tickets) {
		// Room at the front is used before more is asked for.
		copy(q.tickets, q.tickets[q.head:])
		clear(q.tickets[waiting:])
		q.tickets, q.head = q.tickets[:waiting], 0
	}
	q.tickets = append(q.tickets, t)
	q.mu.Unlock()
	if waiting == 0 {
		select {
		case q.filled <- struct{}{}:
		default:
		}
	}
	return ""
}

// close refuses every ticket from here on, unless one is waiting.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = q.closed || len(q.tickets) == q.head
	return q.closed
}

// take removes up to n tickets, as long as fits takes them.
func (q *queue) take(n int, fits func(*ticket) bool) []*ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.tickets)-q.head)
	taken := 0
	for taken < n && fits(q.tickets[q.head+taken]) {
		taken++
	}
	if taken == 0 {
		return nil
	}
	out := append(make([]*ticket, 0, taken), q.tickets[q.head:q.head+taken]...)
	clear(q.tickets[q.head : q.head+taken])
	q.head += taken
	if q.head == len(q.tickets) {
		q.tickets, q.head = q.tickets[:0], 0
	}
	return out
}
