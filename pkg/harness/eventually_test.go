package harness

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// failure runs f with a test of its own and returns what it failed with.
func failure(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	probe := &failingTest{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }() // The panic of Fatalf, in place of the end of the test.
		f(probe)
	}()
	<-done
	if probe.message == "" {
		t.Fatal("it did not fail")
	}
	return probe.message
}

type failingTest struct {
	testing.TB
	message string
}

func (f *failingTest) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f.message)
}

func TestEventuallyReturnsWhenTheConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		Eventually(t, time.Minute, "third look", func() (bool, string) {
			looks++
			return looks == 3, ""
		})
		if waited := time.Since(began); waited != 2*servers.PollInterval {
			t.Errorf("waited %v for the third look", waited)
		}
	})
}

func TestEventuallyFailsWithTheLastDetail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := failure(t, func(t testing.TB) {
			Eventually(t, time.Second, "stock returns", func() (bool, string) { return false, "remaining 3" })
		})
		if want := "stock returns: not within 1s: remaining 3"; got != want {
			t.Errorf("failed with %q, want %q", got, want)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("gave up after %v", waited)
		}
	})
}

func TestASharedServerCannotBeBroken(t *testing.T) {
	shared := SharedMariaDB(t)
	got := failure(t, func(t testing.TB) {
		(&server{t: t, server: shared.server.server, shared: shared.shared}).Kill()
	})
	if !strings.Contains(got, "is shared by all tests") {
		t.Errorf("failed with %q", got)
	}
}
