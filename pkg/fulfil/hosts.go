package fulfil

import (
	"sync"
	"time"
)

// slowFor is how long a receiver counts as slow after it last was, unless it
// answers soon before.
const slowFor = time.Minute

// hosts says how many calls each receiver may have. Receivers that answer soon and
// slow ones have a budget each: a call that has no answer within slowAfter leaves the
// budget of the soon ones, so that none of its places is held for longer, however many
// receivers hang. The budget of the slow ones is then overdrawn, by at most workers calls
// for each slowAfter of a call's timeout, and nothing new is begun from it.
type hosts struct {
	workers   int
	perHost   int
	slowAfter time.Duration

	mu     sync.Mutex
	byName map[string]*host
	calls  [2]int // under way, by budget
}

// The budgets.
const (
	soon = 0
	slow = 1
)

type host struct {
	calls     int
	slowUntil time.Time
}

// call is one call under way.
type call struct {
	hosts  *hosts
	host   *host
	name   string
	budget int
	began  time.Time
	late   *time.Timer
	over   bool // it has its answer, or none will come
}

func newHosts(workers, perHost int, slowAfter time.Duration) *hosts {
	return &hosts{workers: workers, perHost: perHost, slowAfter: slowAfter, byName: make(map[string]*host)}
}

// free is how many more calls may begin to a receiver now.
func (h *hosts) free(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	budget, under := soon, 0
	if of := h.byName[name]; of != nil {
		budget, under = of.budget(time.Now()), of.calls
	}
	return max(0, min(h.perHost-under, h.workers-h.calls[budget]))
}

func (o *host) budget(now time.Time) int {
	if now.Before(o.slowUntil) {
		return slow
	}
	return soon
}

// begin counts a call until its end is called.
func (h *hosts) begin(name string) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.byName[name]
	if of == nil {
		of = &host{}
		h.byName[name] = of
	}
	c := &call{hosts: h, host: of, name: name, began: time.Now()}
	c.budget = of.budget(c.began)
	of.calls++
	h.calls[c.budget]++
	c.late = time.AfterFunc(h.slowAfter, c.linger)
	return c
}

// linger notes that a call takes long.
func (c *call) linger() {
	h := c.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.over {
		return
	}
	c.host.slowUntil = time.Now().Add(slowFor)
	h.calls[c.budget]--
	c.budget = slow
	h.calls[slow]++
}

// answered notes that a call is over. Its place is held until end, so that what came
// of calls is written by a bounded number at a time.
func (c *call) answered() {
	h := c.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	c.late.Stop()
	c.over = true
	if time.Since(c.began) < h.slowAfter {
		c.host.slowUntil = time.Time{}
	}
}

// end gives a call's place to another.
func (c *call) end() {
	h := c.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	c.late.Stop()
	c.over = true
	h.calls[c.budget]--
	c.host.calls--
	h.forget(c.name, c.host, time.Now())
}

// forget drops a receiver that there is nothing to know about.
func (h *hosts) forget(name string, of *host, now time.Time) {
	if of.calls == 0 && of.budget(now) == soon {
		delete(h.byName, name)
	}
}

// count returns the calls under way and the slow receivers.
func (h *hosts) count() (calls, slowHosts int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for name, of := range h.byName {
		if of.budget(now) == slow {
			slowHosts++
		}
		h.forget(name, of, now)
	}
	return h.calls[soon] + h.calls[slow], slowHosts
}
