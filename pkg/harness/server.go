package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// readyLimit bounds the time from a server's start to its first answer. Recovery after a kill on a busy
	// machine with two cores takes seconds.
	readyLimit = 60 * time.Second
	// pingLimit bounds one question whether the server is ready.
	pingLimit = 2 * time.Second
	// launchAttempts bounds how many ports a first start tries.
	launchAttempts = 5
)

// server is a child process that can be ended in every way and started again on the same port and folder.
// Its methods fail the test, so they belong on the test's own goroutine.
type server struct {
	t       testing.TB
	name    string
	folder  string
	port    *port
	program string
	// arguments is asked before every start: the port or the leader may have changed.
	arguments func() ([]string, error)
	// ping answers nil when the server can do its work.
	ping func(ctx context.Context) error
	// shared servers belong to all tests of the binary, so none may break them.
	shared bool

	mu    sync.Mutex
	child *child
}

// launch starts the server for the first time. When another program has taken the port, it tries others.
func (s *server) launch() error {
	for attempt := 1; ; attempt++ {
		reserved, err := reservePort()
		if err != nil {
			return err
		}
		s.port = reserved
		err = s.start()
		if err == nil {
			return nil
		}
		s.discard()
		if attempt == launchAttempts || !portTaken(err) {
			return err
		}
	}
}

// errEnded tells a server that ended before it was ready from one that is slow.
var errEnded = errors.New("ended before it was ready")

func portTaken(err error) bool {
	return errors.Is(err, errEnded) && strings.Contains(strings.ToLower(err.Error()), "address already in use")
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil && !s.child.ended() {
		return fmt.Errorf("%s runs already", s.name)
	}
	args, err := s.arguments()
	if err != nil {
		return err
	}
	s.child, err = startChild(s.folder, s.program, args, childEnv(nil))
	if err != nil {
		return err
	}
	ready, detail := poll(readyLimit, func() (bool, string) {
		if s.child.ended() {
			return true, ""
		}
		ctx, cancel := context.WithTimeout(context.Background(), pingLimit)
		defer cancel()
		if err := s.ping(ctx); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	if s.child.ended() {
		return fmt.Errorf("%s %w (%w); its output:\n%s", s.name, errEnded, s.child.err, s.child.tail())
	}
	if !ready {
		return fmt.Errorf("%s not ready within %v: %s; its output:\n%s", s.name, readyLimit, detail, s.child.tail())
	}
	return nil
}

// discard kills the server for good and gives its port back.
func (s *server) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		if err := s.child.kill(); err != nil {
			s.t.Error(err)
		}
		s.child.killGroup()
	}
	s.port.release()
}

// ownedBy launches the server for one test: the test's end is the server's.
func (s *server) ownedBy(t testing.TB) {
	t.Helper()
	s.t = t
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.child.showOnFailure(t, s.name)
		s.discard()
		if err := os.RemoveAll(s.folder); err != nil {
			t.Errorf("remove the folder of %s: %v", s.name, err)
		}
	})
}

// Addr is the server's address, "127.0.0.1:port". It stays the same over restarts.
func (s *server) Addr() string {
	return s.port.addr()
}

// Start starts a server that was killed or stopped, on the same port and data, and returns when it answers.
func (s *server) Start() {
	s.t.Helper()
	s.refuseWhenShared()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server with SIGKILL and returns when it is gone. Killing a dead server does nothing.
func (s *server) Kill() {
	s.t.Helper()
	s.do((*child).kill)
}

// Stop ends the server with SIGTERM and returns when it is gone.
func (s *server) Stop() {
	s.t.Helper()
	s.do((*child).stop)
}

// Pause freezes the server (SIGSTOP): its connections stay open, and nothing is answered.
func (s *server) Pause() {
	s.t.Helper()
	s.do(func(c *child) error { return c.signal(syscall.SIGSTOP) })
}

// Resume lets a paused server go on (SIGCONT).
func (s *server) Resume() {
	s.t.Helper()
	s.do(func(c *child) error { return c.signal(syscall.SIGCONT) })
}

// Output is what the server has printed so far, over all its starts.
func (s *server) Output() string {
	return s.child.output()
}

func (s *server) do(what func(*child) error) {
	s.t.Helper()
	s.refuseWhenShared()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := what(s.child); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) refuseWhenShared() {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("%s is shared by all tests of this binary: ask for a private one to break it", s.name)
	}
}
