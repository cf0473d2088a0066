package harness

import (
	"testing"
	"time"
)

// pollInterval is the pause between two looks at a condition.
const pollInterval = 10 * time.Millisecond

// Eventually looks at cond until it is ok, and fails the test when it is not within the given time. The
// failure names what was waited for and the last detail. It is the only way to wait in these tests for
// something that sends no signal. Call it from the test's own goroutine.
func Eventually(t testing.TB, within time.Duration, what string, cond func() (ok bool, detail string)) {
	t.Helper()
	if ok, detail := poll(within, cond); !ok {
		t.Fatalf("%s: not within %v: %s", what, within, detail)
	}
}

// poll looks at cond at least once, and at least once after the time is over, so that a process that was
// not scheduled for a while is not taken for one that failed.
func poll(within time.Duration, cond func() (ok bool, detail string)) (bool, string) {
	deadline := time.Now().Add(within)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		last := !time.Now().Before(deadline)
		ok, detail := cond()
		if ok || last {
			return ok, detail
		}
		<-ticker.C
	}
}
