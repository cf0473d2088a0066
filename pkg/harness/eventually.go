package harness

import (
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// Eventually looks at cond until it is ok, and fails the test when it is not within the given time. The
// failure names what was waited for and the last detail. It is the only way to wait in these tests for
// something that sends no signal. Call it from the test's own goroutine.
func Eventually(t testing.TB, within time.Duration, what string, cond func() (ok bool, detail string)) {
	t.Helper()
	if ok, detail := servers.Poll(within, cond); !ok {
		t.Fatalf("%s: not within %v: %s", what, within, detail)
	}
}
