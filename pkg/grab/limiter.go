package grab

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiterMax bounds how many callers a limiter remembers. Beyond it those that
// are at rest are forgotten, which gives them nothing: a bucket at rest is full.
const limiterMax = 100_000

// limiter holds one token bucket per caller. A nil limiter allows everything.
type limiter struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

// newLimiter returns a limiter of perSecond grabs per caller, nil for 0.
func newLimiter(perSecond float64, burst int) *limiter {
	if perSecond == 0 {
		return nil
	}
	return &limiter{rate: rate.Limit(perSecond), burst: burst, buckets: make(map[string]*rate.Limiter)}
}

// wait returns 0 and takes a token when the caller may go on, else how long
// until it may.
func (l *limiter) wait(caller string, now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, ok := l.buckets[caller]
	if !ok {
		if len(l.buckets) >= limiterMax {
			l.forget(now)
		}
		bucket = rate.NewLimiter(l.rate, l.burst)
		l.buckets[caller] = bucket
	}
	if bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(missing / float64(l.rate) * float64(time.Second))
}

// forget drops the buckets at rest; when there are none, all of them: memory
// is bounded before fairness.
func (l *limiter) forget(now time.Time) {
	for caller, bucket := range l.buckets {
		if bucket.TokensAt(now) >= float64(l.burst) {
			delete(l.buckets, caller)
		}
	}
	if len(l.buckets) >= limiterMax {
		clear(l.buckets)
	}
}
