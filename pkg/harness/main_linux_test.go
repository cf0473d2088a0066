package harness

import (
	"testing"
	"time"
)

func TestChildrenDieWithAKilledTestBinary(t *testing.T) {
	binary := play(t, "parent")
	addr := binary.WaitLine(serverLine, 30*time.Second)[1]
	if !listens(addr) {
		t.Fatalf("nobody listens on %s", addr)
	}

	binary.Kill()

	Eventually(t, 10*time.Second, "server is gone", func() (bool, string) {
		return !listens(addr), "still listening on " + addr
	})
}
