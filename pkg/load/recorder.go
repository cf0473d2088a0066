package load

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Range and resolution of the latencies, in microseconds: three digits from 1 µs
// to 10 minutes.
const (
	latencyMin    = 1
	latencyMax    = int64(10 * time.Minute / time.Microsecond)
	latencyDigits = 3
)

// maxExamples bounds the contradictions a report tells in full.
const maxExamples = 10

// grabState is what is known of one grab.
type grabState struct {
	class   string
	orderID string
	tried   bool
	won     bool
}

// recorder hears every answer.
type recorder struct {
	cfg   Config
	start time.Time

	mu             sync.Mutex
	grabs          []grabState
	requests       int64
	doubled        int64
	retried        int64
	replayed       int64
	decided        int64
	refused        int64
	answers        map[string]*hdrhistogram.Histogram
	decision       *hdrhistogram.Histogram
	winners        []Winner
	contradictions int64
	examples       []string
	problem        string
}

func newRecorder(cfg Config, start time.Time) *recorder {
	return &recorder{
		cfg: cfg, start: start, grabs: make([]grabState, cfg.Grabs),
		answers: make(map[string]*hdrhistogram.Histogram), decision: newHistogram(),
	}
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(latencyMin, latencyMax, latencyDigits)
}

func observe(h *hdrhistogram.Histogram, d time.Duration) {
	// In range after clamping, so there is no error to look at.
	_ = h.RecordValue(min(max(d.Microseconds(), latencyMin), latencyMax))
}

// answer records what a task was told; retry says that it will be asked again.
func (r *recorder) answer(t task, a answer, retry bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	switch {
	case t.attempt > 1:
		r.retried++
	case t.copy > 0:
		r.doubled++
	}
	if a.replayed {
		r.replayed++
	}
	h, ok := r.answers[a.class]
	if !ok {
		h = newHistogram()
		r.answers[a.class] = h
	}
	observe(h, a.at.Sub(t.due))
	if a.problem != "" && r.problem == "" {
		r.problem = a.problem
	}
	g := &r.grabs[t.grab]
	r.compare(t, a, g)
	if a.class == string(sale.Won) && !g.won {
		g.won = true
		r.winners = append(r.winners, Winner{User: t.user, Key: t.key, OrderID: a.orderID, At: a.at})
	}
	if retry {
		return
	}
	if !g.tried {
		g.tried = true
		r.decided++
		if rank(a.class) == 2 {
			r.refused++
		}
		observe(r.decision, a.at.Sub(t.first))
	}
	// Of two copies the better answer counts: the user has what one of them won.
	if g.class == "" || rank(a.class) < rank(g.class) {
		g.class = a.class
	}
}

// compare holds an answer against the earlier ones for the same key: they must
// name the same order, and a winner's repetition must not be refused.
func (r *recorder) compare(t task, a answer, g *grabState) {
	named := a.class == string(sale.Won) || a.class == string(sale.Pending)
	refusedOwn := a.class == string(sale.AlreadyGrabbed) && a.orderID != "" && a.orderID == g.orderID
	if (named && g.orderID != "" && a.orderID != g.orderID) || refusedOwn {
		r.contradictions++
		if len(r.examples) < maxExamples {
			r.examples = append(r.examples, fmt.Sprintf("key %s of %s: order %s, then %s %s", t.key, t.user, g.orderID, a.class, a.orderID))
		}
	}
	if named && g.orderID == "" {
		g.orderID = a.orderID
	}
}

func rank(class string) int {
	switch class {
	case string(sale.Won):
		return 0
	case string(sale.Pending):
		return 1
	case ClassFailed:
		return 3
	}
	return 2
}

// Progress is how far a run has come.
type Progress struct {
	Elapsed  time.Duration
	Grabs    int   // of the whole run
	Decided  int64 // grabs with their last answer
	Won      int64 // grabs that were told "won"
	Refused  int64 // grabs whose last answer was a refusal
	Turned   int64 // answers that asked to come again: not loaded, unavailable, pending, rate limited
	Failed   int64 // answers that were none
	Requests int64 // answered, retries and duplicates included
}

func (r *recorder) progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := func(classes ...sale.Outcome) (n int64) {
		for _, class := range classes {
			if h, ok := r.answers[string(class)]; ok {
				n += h.TotalCount()
			}
		}
		return n
	}
	return Progress{
		Elapsed: time.Since(r.start), Grabs: r.cfg.Grabs, Decided: r.decided,
		Won: int64(len(r.winners)), Refused: r.refused, Requests: r.requests,
		Turned: count(sale.NotLoaded, sale.Unavailable, sale.Pending, sale.RateLimited), Failed: count(ClassFailed),
	}
}

// tell calls the progress function until the returned function is called, and then once more.
func (r *recorder) tell() (stop func()) {
	if r.cfg.Progress == nil {
		return func() {}
	}
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		tick := time.NewTicker(r.cfg.ProgressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.cfg.Progress(r.progress())
			case <-ended:
				r.cfg.Progress(r.progress())
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-told
	}
}
