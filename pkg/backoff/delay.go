// Package backoff is the one place for waiting before trying again.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay is the pause before the next attempt, after attempt ones have failed (1 is
// the first failure; less counts as 1). It doubles from base up to limit, and half
// of it is random, so that those who failed together don't come back together:
// the result is between half and the whole of min(base*2^(attempt-1), limit), and
// never less than a nanosecond.
func Delay(attempt int, base, limit time.Duration) time.Duration {
	full := base
	for n := 1; n < attempt && full < limit; n++ {
		if full > limit/2 { // doubling would pass limit, or overflow
			full = limit
			break
		}
		full *= 2
	}
	full = clamp(full, 1, limit)
	half := full / 2
	return clamp(half+rand.N(full-half+1), 1, full)
}

func clamp(d, low, high time.Duration) time.Duration {
	return max(low, min(d, high))
}

// Pause waits for d, or less when ctx ends; it reports whether ctx goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
