package harness

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// roleVariable makes the test binary play a part in its own tests: one that has to die for them.
const roleVariable = "HARNESS_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
	case "parent":
		startServerAndWait()
	case "leaky":
		go func() { select {} }()
	case "untidy":
		addr, err := startServer()
		fmt.Println("server", addr, err)
	default:
		panic("unknown role " + role)
	}
	Main(m)
}

// startServerAndWait starts a server that only its death can end.
func startServerAndWait() {
	addr, err := startServer()
	fmt.Println("server", addr, err)
	select {}
}

func startServer() (addr string, err error) {
	s, err := servers.StartRedis(nil)
	if err != nil {
		return "", err
	}
	return s.Addr(), nil
}

// play runs this test binary in a role, without any test.
func play(t *testing.T, role string) *ChildProcess {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	return Process(t, self, []string{"-test.run=^$"}, []string{roleVariable + "=" + role})
}

var serverLine = regexp.MustCompile(`^server (\S+) <nil>$`)

func TestMainKillsWhatTheTestsLeft(t *testing.T) {
	binary := play(t, "untidy")
	addr := binary.WaitLine(serverLine, 30*time.Second)[1]
	if code := binary.Wait(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, binary.Output())
	}
	if listens(addr) {
		t.Fatalf("the server on %s outlived its test binary", addr)
	}
}

func TestMainFailsARunThatLeaksGoroutines(t *testing.T) {
	binary := play(t, "leaky")
	if code := binary.Wait(); code != 1 {
		t.Fatalf("exit code %d, want 1", code)
	}
	if !strings.Contains(binary.Stderr(), "goroutines left") {
		t.Fatalf("the leak is not named:\n%s", binary.Output())
	}
}
