package grab

import "sync"

// numbers counts the batches of one batcher and knows what became of them. A
// number is open from the call that carries it until it is settled.
type numbers struct {
	mu      sync.Mutex
	last    uint64
	open    map[uint64]bool
	void    map[uint64]int64 // fenced out: number -> its generation
	stored  uint64           // the highest that stood on the outbox and is in the stream
	trimmed uint64           // the outbox is trimmed through it
}

// next gives a number out, and the last one that is in the stream, or had
// nothing for it, with all before it.
func (n *numbers) next() (number, acked uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	acked = n.acked() // before the new number, which is open
	n.last++
	if n.open == nil {
		n.open, n.void = make(map[uint64]bool), make(map[uint64]int64)
	}
	n.open[n.last] = true
	return n.last, acked
}

// settle ends a number that has nothing for the stream.
func (n *numbers) settle(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, number)
}

// inStream ends a number whose batch is in the stream. What was fenced out in
// an earlier generation ends with it: Redis has forgotten those grants.
func (n *numbers) inStream(number uint64, generation int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, number)
	n.stored = max(n.stored, number)
	for fenced, of := range n.void {
		if of < generation {
			delete(n.open, fenced)
			delete(n.void, fenced)
		}
	}
}

// fenced marks a number whose batch was fenced out. It stays open, because
// "acked" tells readers of the grants that they are durable.
func (n *numbers) fenced(number uint64, generation int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.void[number] = generation
}

func (n *numbers) acked() uint64 {
	acked := n.last
	for number := range n.open {
		acked = min(acked, number-1)
	}
	return acked
}

// untrimmed returns the last number to trim through, when the outbox may hold
// batches up to it.
func (n *numbers) untrimmed() (through uint64, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	through = n.acked()
	return through, through > n.trimmed && n.stored > n.trimmed
}

func (n *numbers) trim(through uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trimmed = max(n.trimmed, through)
}

// idle reports whether nothing is under way.
func (n *numbers) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.open) == len(n.void)
}

// settled reports whether nothing is under way, nothing was fenced out, and the outbox
// is trimmed: a later number may then say of all before it that they are in the stream.
func (n *numbers) settled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.open) == 0 && n.stored <= n.trimmed
}

// given is the last number that was given out.
func (n *numbers) given() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// after begins with the number after last.
func (n *numbers) after(last uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.trimmed = last, last
}
