package backoff_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/doorbuster/doorbuster/pkg/backoff"
)

func TestDelayStaysWithinHalfAndWholeOfItsStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(-10, math.MaxInt32).Draw(t, "attempt")
		base := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "limit"))

		got := backoff.Delay(attempt, base, limit)

		exact := float64(base) * math.Pow(2, float64(max(attempt, 1)-1))
		step := limit
		if exact < float64(limit) {
			step = time.Duration(exact)
		}
		// The model is rounded beyond 2^53; a thousandth is far more than that.
		slack := step/1000 + 1
		if got < step/2-slack || got > limit || got-step > slack || got < 1 {
			t.Fatalf("Delay(%d, %v, %v) = %v, want %v to %v", attempt, base, limit, got, step/2, step)
		}
	})
}

func TestDelayGrowsUntilItsLimit(t *testing.T) {
	const base, limit = 100 * time.Millisecond, 10 * time.Second
	// Two steps double at least what jitter takes away.
	for attempt := 1; attempt <= 5; attempt++ {
		if now, later := backoff.Delay(attempt, base, limit), backoff.Delay(attempt+2, base, limit); later < now {
			t.Fatalf("attempt %d waits %v, attempt %d only %v", attempt, now, attempt+2, later)
		}
	}
	if d := backoff.Delay(1000, base, limit); d < limit/2 || d > limit {
		t.Fatalf("the last delay is %v, want %v to %v", d, limit/2, limit)
	}
}

func TestDelaySpreadsThoseWhoFailedTogether(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff.Delay(4, time.Second, time.Minute)] = true
	}
	if len(seen) < 50 {
		t.Fatalf("100 delays have only %d values", len(seen))
	}
}

func TestDelaySurvivesNonsense(t *testing.T) {
	for _, c := range []struct{ base, limit time.Duration }{{0, 0}, {-1, time.Second}, {time.Second, -1}} {
		if d := backoff.Delay(3, c.base, c.limit); d != 1 {
			t.Fatalf("Delay(3, %v, %v) = %v, want the least there is", c.base, c.limit, d)
		}
	}
}
