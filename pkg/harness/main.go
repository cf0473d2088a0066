package harness

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
	"go.uber.org/goleak"
)

// leakTimeout is how long goroutines may take to end after the last test.
const leakTimeout = 10 * time.Second

// lasting are goroutines of a library that outlive what started them: fasthttp keeps a clock for as long as the
// process lives, and has a pool of goroutines look only every ten seconds whether it is still needed.
var lasting = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
}

// mainRuns tells whether the tests run under Main, which stops what they share.
var mainRuns atomic.Bool

// Main is for TestMain: it runs the tests, kills every child they left, removes the temporary folders, and
// fails a successful run that left goroutines behind. It does not return.
func Main(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	mainRuns.Store(true)
	code := runThenCleanUp(m)
	if code != 0 {
		return code
	}
	var err error
	// go-redis gives up dialling a server that was killed only after a second.
	gone, _ := servers.Poll(leakTimeout, func() (bool, string) {
		err = goleak.Find(lasting...)
		return err == nil, ""
	})
	if !gone {
		fmt.Fprintf(os.Stderr, "goroutines left after all tests passed: %v\n", err)
		return 1
	}
	return 0
}

// runThenCleanUp cleans up in a defer so that a panic on this goroutine leaves nothing behind either.
func runThenCleanUp(m *testing.M) int {
	defer servers.CleanUp()
	return m.Run()
}

// NoLeaks fails the test when it ends with goroutines that it did not begin with. Call it first: it then
// looks last, after everything registered later with t.Cleanup has been closed. The goroutines of the
// harness itself do not count. It is not for parallel tests: they see each other's goroutines.
func NoLeaks(t testing.TB) {
	t.Helper()
	servers.StartLauncher()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, append([]goleak.Option{before}, lasting...)...) })
}
