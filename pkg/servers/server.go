package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
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

// Server is a child process that can be ended in every way and started again on the same port and folder.
type Server struct {
	name    string
	folder  string
	port    *Port
	program string
	// arguments is asked before every start: the port or the leader may have changed.
	arguments func() ([]string, error)
	// ping answers nil when the server can do its work.
	ping func(ctx context.Context) error

	mu    sync.Mutex
	child *Child
}

// launch starts the server for the first time. When another program has taken the port, it tries others. After an
// error nothing is left of the server.
func (s *Server) launch() error {
	for attempt := 1; ; attempt++ {
		reserved, err := ReservePort()
		if err != nil {
			return errors.Join(err, os.RemoveAll(s.folder))
		}
		s.port = reserved
		err = s.Start()
		if err == nil {
			return nil
		}
		discarded := s.discard()
		if attempt == launchAttempts || !portTaken(err) {
			return errors.Join(err, discarded, os.RemoveAll(s.folder))
		}
	}
}

// errEnded tells a server that ended before it was ready from one that is slow.
var errEnded = errors.New("ended before it was ready")

func portTaken(err error) bool {
	return errors.Is(err, errEnded) && strings.Contains(strings.ToLower(err.Error()), "address already in use")
}

// Start starts a server that was killed or stopped, on the same port and data, and returns when it answers.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil && !s.child.Ended() {
		return fmt.Errorf("%s runs already", s.name)
	}
	args, err := s.arguments()
	if err != nil {
		return err
	}
	s.child, err = StartChild(s.folder, s.program, args, Environment())
	if err != nil {
		return err
	}
	ready, detail := Poll(readyLimit, func() (bool, string) {
		if s.child.Ended() {
			return true, ""
		}
		ctx, cancel := context.WithTimeout(context.Background(), pingLimit)
		defer cancel()
		if err := s.ping(ctx); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	if s.child.Ended() {
		return fmt.Errorf("%s %w (%w); its output:\n%s", s.name, errEnded, s.child.Err(), s.child.Tail())
	}
	if !ready {
		return fmt.Errorf("%s not ready within %v: %s; its output:\n%s", s.name, readyLimit, detail, s.child.Tail())
	}
	return nil
}

// discard kills the server for good and gives its port back.
func (s *Server) discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.child != nil {
		err = s.child.Kill()
		s.child.KillGroup()
	}
	s.port.Release()
	return err
}

// Close kills the server for good and removes its data.
func (s *Server) Close() error {
	return errors.Join(s.discard(), os.RemoveAll(s.folder))
}

// Name is the name of the server's program.
func (s *Server) Name() string { return s.name }

// Addr is the server's address, "127.0.0.1:port". It stays the same over restarts.
func (s *Server) Addr() string { return s.port.Addr() }

// Port is the number of the server's port.
func (s *Server) Port() int { return s.port.Number() }

// Kill ends the server with SIGKILL and returns when it is gone. Killing a dead server does nothing.
func (s *Server) Kill() error { return s.do((*Child).Kill) }

// Stop ends the server with SIGTERM and returns when it is gone.
func (s *Server) Stop() error { return s.do((*Child).Stop) }

// Pause freezes the server (SIGSTOP): its connections stay open, and nothing is answered once Pause has returned.
func (s *Server) Pause() error { return s.do((*Child).Pause) }

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume() error {
	return s.do(func(c *Child) error { return c.Signal(syscall.SIGCONT) })
}

// Output is what the server has printed so far, over all its starts.
func (s *Server) Output() string { return s.child.Output() }

// Tail is the end of Output.
func (s *Server) Tail() string { return s.child.Tail() }

func (s *Server) do(what func(*Child) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return what(s.child)
}
