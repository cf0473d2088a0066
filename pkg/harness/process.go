package harness

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// exitLimit bounds Wait.
const exitLimit = 2 * time.Minute

// ChildProcess is a program under test, running as a process of its own.
type ChildProcess struct {
	t     testing.TB
	name  string
	child *servers.Child
}

// Process starts a program. env ("NAME=value") is added to the test's own environment, from which every
// DOORBUSTER_ variable has been removed. The process is killed when the test ends, with all that it
// started; when the test has failed, the end of its output is shown.
func Process(t testing.TB, program string, args, env []string) *ChildProcess {
	t.Helper()
	name := filepath.Base(program)
	folder := Folder(t, name)
	started, err := servers.StartChild(folder, program, args, servers.Environment(env...))
	if err != nil {
		t.Fatal(err)
	}
	p := &ChildProcess{t: t, name: name, child: started}
	t.Cleanup(func() {
		if err := started.Kill(); err != nil {
			t.Error(err)
		}
		started.KillGroup()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, started.Tail())
		}
	})
	return p
}

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *ChildProcess) Kill() {
	p.t.Helper()
	if err := p.child.Kill(); err != nil {
		p.t.Fatal(err)
	}
}

// Interrupt sends SIGINT, as Ctrl-C does, and returns at once.
func (p *ChildProcess) Interrupt() {
	p.t.Helper()
	p.send(syscall.SIGINT)
}

// Terminate sends SIGTERM, as an orchestrator does, and returns at once.
func (p *ChildProcess) Terminate() {
	p.t.Helper()
	p.send(syscall.SIGTERM)
}

// Pause freezes the process (SIGSTOP) and returns when it stands still.
func (p *ChildProcess) Pause() {
	p.t.Helper()
	if err := p.child.Pause(); err != nil {
		p.t.Fatal(err)
	}
}

// Resume lets a paused process go on (SIGCONT).
func (p *ChildProcess) Resume() {
	p.t.Helper()
	p.send(syscall.SIGCONT)
}

func (p *ChildProcess) send(sig syscall.Signal) {
	p.t.Helper()
	if err := p.child.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits for the process to end and returns its exit code, -1 when a signal ended it. A process that
// runs on for two minutes fails the test.
func (p *ChildProcess) Wait() int {
	p.t.Helper()
	select {
	case <-p.child.Done():
	case <-time.After(exitLimit):
		p.t.Fatalf("%s still runs after %v", p.name, exitLimit)
	}
	var exit *exec.ExitError
	if err := p.child.Err(); err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("wait for %s: %v", p.name, err)
	}
	return p.child.ExitCode()
}

// Running tells whether the process has not ended yet.
func (p *ChildProcess) Running() bool {
	return !p.child.Ended()
}

// PID is the process id.
func (p *ChildProcess) PID() int {
	return p.child.PID()
}

// Stdout is what the process has printed so far.
func (p *ChildProcess) Stdout() string {
	return p.child.Stdout()
}

// Stderr is what the process has logged so far.
func (p *ChildProcess) Stderr() string {
	return p.child.Stderr()
}

// Output is Stdout followed by Stderr.
func (p *ChildProcess) Output() string {
	return p.child.Output()
}

// WaitLine waits for a complete line on the process's standard output that matches re, and returns the
// match and its groups. It fails the test when there is none within the given time, or when the process
// ends without having printed one.
func (p *ChildProcess) WaitLine(re *regexp.Regexp, within time.Duration) []string {
	p.t.Helper()
	var match []string
	Eventually(p.t, within, p.name+" prints a line like "+re.String(), func() (bool, string) {
		over := p.child.Ended() // Asked first, so that nothing can be printed after the last look.
		match = matchLine(re, p.Stdout())
		if match == nil && over {
			p.t.Fatalf("%s ended without a line like %s:\n%s", p.name, re, p.child.Tail())
		}
		return match != nil, "not printed yet"
	})
	return match
}

// matchLine finds the first complete line that matches.
func matchLine(re *regexp.Regexp, output string) []string {
	lines := strings.Split(output, "\n")
	for _, line := range lines[:len(lines)-1] { // What follows the last newline may still grow.
		if match := re.FindStringSubmatch(line); match != nil {
			return match
		}
	}
	return nil
}
