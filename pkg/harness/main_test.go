package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
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
	path, err := findRedis()
	if err != nil {
		return "", err
	}
	folder, err := newFolder("redis")
	if err != nil {
		return "", err
	}
	s := &RedisServer{}
	s.name, s.folder, s.program = "redis-server", folder, path
	s.arguments, s.ping = s.commandLine, s.pong
	if err := s.launch(); err != nil {
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

func TestFoldersOfDeadTestBinariesAreRemoved(t *testing.T) {
	base := t.TempDir()
	alive, dead := filepath.Join(base, "run-alive"), filepath.Join(base, "run-dead")
	for _, folder := range []string{alive, dead} {
		must(t, os.MkdirAll(filepath.Join(folder, "data"), 0o700))
	}
	lock, err := lockFile(filepath.Join(alive, "alive.lock"))
	must(t, err)
	defer lock.Close()

	removeAbandoned(base)

	if _, err := os.Stat(alive); err != nil {
		t.Errorf("the folder of a living binary: %v", err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead binary is still there: %v", err)
	}
}
