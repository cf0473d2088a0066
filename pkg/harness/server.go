package harness

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// server is a private server of a test. Its methods fail the test, so they belong on the test's own goroutine.
type server struct {
	t      testing.TB
	server *servers.Server
	// shared servers belong to all tests of the binary, so none may break them.
	shared bool
}

// ownedBy gives a server that was just started to one test: the test's end is the server's.
func ownedBy(t testing.TB, s *servers.Server) server {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of %s:\n%s", s.Name(), s.Tail())
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", s.Name(), err)
		}
	})
	return server{t: t, server: s}
}

// Addr is the server's address, "127.0.0.1:port". It stays the same over restarts.
func (s *server) Addr() string { return s.server.Addr() }

// Output is what the server has printed so far, over all its starts.
func (s *server) Output() string { return s.server.Output() }

// Start starts a server that was killed or stopped, on the same port and data, and returns when it answers.
func (s *server) Start() {
	s.t.Helper()
	s.do((*servers.Server).Start)
}

// Kill ends the server with SIGKILL and returns when it is gone. Killing a dead server does nothing.
func (s *server) Kill() {
	s.t.Helper()
	s.do((*servers.Server).Kill)
}

// Stop ends the server with SIGTERM and returns when it is gone.
func (s *server) Stop() {
	s.t.Helper()
	s.do((*servers.Server).Stop)
}

// Pause freezes the server (SIGSTOP): its connections stay open, and nothing is answered.
func (s *server) Pause() {
	s.t.Helper()
	s.do((*servers.Server).Pause)
}

// Resume lets a paused server go on (SIGCONT).
func (s *server) Resume() {
	s.t.Helper()
	s.do((*servers.Server).Resume)
}

func (s *server) do(what func(*servers.Server) error) {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("%s is shared by all tests of this binary: ask for a private one to break it", s.server.Name())
	}
	if err := what(s.server); err != nil {
		s.t.Fatal(err)
	}
}
