package load

import (
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// task is one request that is due.
type task struct {
	grab    int // which grab
	copy    int // 1 for the second of two sent at the same time
	attempt int // counts from 1
	user    string
	key     string
	due     time.Time // when it is meant to begin
	first   time.Time // when the grab's first attempt was meant to begin
}

// schedule hands out the tasks in the order they are due: the arrivals, which
// are computed, and the retries, which wait in a heap.
type schedule struct {
	cfg   Config
	start time.Time
	wake  chan struct{} // something changed: look again

	mu      sync.Mutex
	retries taskHeap
	arrived int // grabs whose arrival was handed out
	double  bool
	open    int // copies that are not decided yet
	random  *rand.Rand
}

func newSchedule(cfg Config, start time.Time) *schedule {
	s := &schedule{
		cfg: cfg, start: start, wake: make(chan struct{}, 1),
		random: rand.New(rand.NewPCG(cfg.Seed, 0)),
	}
	s.open = cfg.Grabs
	for i := range cfg.Grabs {
		if s.doubled(i) {
			s.open++
		}
	}
	return s
}

// copies is how many requests there are, retries aside.
func (s *schedule) copies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// doubled tells whether a grab is sent twice. It depends on the seed alone.
func (s *schedule) doubled(grab int) bool {
	return s.cfg.Duplicates > 0 && rand.New(rand.NewPCG(s.cfg.Seed, uint64(grab)+1)).Float64() < s.cfg.Duplicates
}

// arrival is when a grab is meant to begin.
func (s *schedule) arrival(grab int) time.Time {
	if s.cfg.Rate == 0 {
		return s.start
	}
	seconds := float64(grab) / s.cfg.Rate
	if s.cfg.Ramp {
		// The grabs begun by a time grow with its square.
		all := float64(s.cfg.Grabs) / s.cfg.Rate
		seconds = all * math.Sqrt(float64(grab)/float64(s.cfg.Grabs))
	}
	return s.start.Add(time.Duration(seconds * float64(time.Second)))
}

// run hands the tasks out when they are due, until all are decided or ctx ends.
func (s *schedule) run(ctx context.Context, out chan<- task) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, wait, over := s.pop(time.Now())
		switch {
		case over:
			return
		case next != nil:
			select {
			case out <- *next:
			case <-ctx.Done():
				return
			}
		default:
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// idle is how long run waits when nothing is scheduled and requests are under
// way; it is woken when one of them ends.
const idle = time.Second

// pop returns the next task when it is due, or how long to wait for it.
func (s *schedule) pop(now time.Time) (next *task, wait time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == 0 {
		return nil, 0, true
	}
	wait = idle
	if len(s.retries) > 0 {
		if wait = s.retries[0].due.Sub(now); wait <= 0 {
			t := heap.Pop(&s.retries).(task)
			return &t, 0, false
		}
	}
	if s.arrived == s.cfg.Grabs {
		return nil, wait, false
	}
	at := s.arrival(s.arrived)
	if until := at.Sub(now); until > 0 {
		return nil, min(wait, until), false
	}
	return s.arrive(at), 0, false
}

// arrive makes the next arrival's task; a doubled grab arrives twice.
func (s *schedule) arrive(at time.Time) *task {
	grab := s.arrived
	t := &task{
		grab: grab, attempt: 1, due: at, first: at,
		user: s.cfg.UserPrefix + strconv.Itoa(grab%s.cfg.Users),
		key:  strconv.FormatUint(s.cfg.Seed, 36) + "-" + strconv.Itoa(grab),
	}
	if !s.double && s.doubled(grab) {
		s.double = true
		return t
	}
	if s.double {
		t.copy, s.double = 1, false
	}
	s.arrived++
	return t
}

// Pauses before a retry that the service did not name one for.
const (
	retryBase = 50 * time.Millisecond
	retryMax  = 2 * time.Second
)

// again schedules the next attempt: after what the service asked for, or after a
// growing pause, plus up to a quarter so that the crowd does not come back as one.
func (s *schedule) again(t task, a answer) {
	pause := a.retryAfter
	if pause == 0 {
		pause = min(retryBase<<min(t.attempt-1, 10), retryMax)
	}
	s.mu.Lock()
	pause += time.Duration(s.random.Float64() * float64(pause) / 4)
	t.attempt++
	t.due = time.Now().Add(pause)
	heap.Push(&s.retries, t)
	s.mu.Unlock()
	s.poke()
}

// decided takes a copy off the schedule.
func (s *schedule) decided() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.poke()
}

func (s *schedule) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// taskHeap is ordered by due; see container/heap.
type taskHeap []task

func (h *taskHeap) Len() int           { return len(*h) }
func (h *taskHeap) Less(i, j int) bool { return (*h)[i].due.Before((*h)[j].due) }
func (h *taskHeap) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

// Push appends a task.
func (h *taskHeap) Push(x any) { *h = append(*h, x.(task)) }

// Pop removes the last task.
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h = old[:len(old)-1]
	return t
}
