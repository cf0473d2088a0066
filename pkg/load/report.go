package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Report says what the crowd was told.
type Report struct {
	URL        string        `json:"url"`
	SaleID     string        `json:"sale_id"`
	StartedAt  time.Time     `json:"started_at"`
	Duration   sale.Duration `json:"duration"`
	Seed       uint64        `json:"seed"`
	Users      int           `json:"users"`
	Grabs      int           `json:"grabs"`
	Rate       float64       `json:"rate"` // grabs begun per second; 0 is all at once
	Duplicates float64       `json:"duplicates"`

	Requests int64 `json:"requests"` // answered, retries and duplicates included
	Doubled  int64 `json:"doubled"`  // of those, double clicks: the second one of two sent at once
	Retried  int64 `json:"retried"`  // of those, repetitions of a grab that was not decided
	Replayed int64 `json:"replayed"` // answers with an order that the key already had
	// RequestsPerSecond is Requests over Duration.
	RequestsPerSecond float64 `json:"requests_per_second"`

	// Outcomes counts the grabs by their last answer, Undecided those that have none.
	Outcomes  map[string]int64 `json:"outcomes"`
	Undecided int64            `json:"undecided"`
	// DistinctWinners counts the users who were told "won".
	DistinctWinners int64 `json:"distinct_winners"`
	// Contradictions counts keys that were answered with two different orders, or
	// refused after they had won.
	Contradictions int64    `json:"contradictions"`
	Examples       []string `json:"contradiction_examples,omitempty"`
	// Problem is the first failure or refusal that is none of the outcomes.
	Problem string `json:"first_problem,omitempty"`

	// Latency is per class of answer, from when a request was meant to begin.
	Latency map[string]Latency `json:"latency"`
	// Decision is from when a grab was meant to begin to its last answer, retries included.
	Decision Latency `json:"decision"`

	// Winners are the grabs that were told "won", in the order they heard it.
	Winners []Winner `json:"-"`
}

// Winner is a grab that was told "won".
type Winner struct {
	User    string
	Key     string
	OrderID string
	At      time.Time
}

// Latency is a distribution.
type Latency struct {
	Count int64         `json:"count"`
	P50   sale.Duration `json:"p50"`
	P90   sale.Duration `json:"p90"`
	P99   sale.Duration `json:"p99"`
	P999  sale.Duration `json:"p99_9"`
	Max   sale.Duration `json:"max"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	at := func(percentile float64) sale.Duration {
		return sale.Duration(time.Duration(h.ValueAtPercentile(percentile)) * time.Microsecond)
	}
	return Latency{
		Count: h.TotalCount(), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: sale.Duration(time.Duration(h.Max()) * time.Microsecond),
	}
}

func (r *recorder) report(took time.Duration) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{
		URL: r.cfg.URL, SaleID: r.cfg.SaleID, StartedAt: r.start.UTC(), Duration: sale.Duration(took),
		Seed: r.cfg.Seed, Users: r.cfg.Users, Grabs: r.cfg.Grabs, Rate: r.cfg.Rate, Duplicates: r.cfg.Duplicates,
		Requests: r.requests, Doubled: r.doubled, Retried: r.retried, Replayed: r.replayed,
		RequestsPerSecond: float64(r.requests) / took.Seconds(),
		Outcomes:          make(map[string]int64), Latency: make(map[string]Latency), Decision: latencyOf(r.decision),
		Contradictions: r.contradictions, Examples: r.examples, Problem: r.problem, Winners: r.winners,
	}
	for i := range r.grabs {
		if class := r.grabs[i].class; class != "" {
			report.Outcomes[class]++
		} else {
			report.Undecided++
		}
	}
	for class, h := range r.answers {
		report.Latency[class] = latencyOf(h)
	}
	users := make(map[string]struct{}, len(r.winners))
	for _, w := range r.winners {
		users[w.User] = struct{}{}
	}
	report.DistinctWinners = int64(len(users))
	return report
}

// LongestPause is the longest time between two wins from the given moment on,
// while the crowd went on: how long selling stood still.
func (r *Report) LongestPause(from time.Time) time.Duration {
	var longest time.Duration
	last := from
	for _, w := range r.Winners {
		if w.At.Before(from) {
			continue
		}
		longest = max(longest, w.At.Sub(last))
		last = w.At
	}
	return longest
}
