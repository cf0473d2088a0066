package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopLimit bounds a polite stop.
	stopLimit = 30 * time.Second
	// pauseLimit bounds the time from SIGSTOP to the last thread that stands still.
	pauseLimit = 10 * time.Second
	// shownOutput is how much of a child's output Tail returns, in bytes from the end.
	shownOutput = 8 << 10
)

// Child is one run of one child process. Its output goes to files, so that it costs no goroutine.
type Child struct {
	cmd            *exec.Cmd
	stdout, stderr string        // paths
	done           chan struct{} // closed once the process has been waited for
	err            error         // what Wait returned; valid after done
}

// children holds every child that has not ended yet.
var children struct {
	sync.Mutex
	running map[*Child]struct{}
}

// StartChild starts program with its output appended to stdout.log and stderr.log in dir. On Linux the
// kernel kills it when this process dies. env is its whole environment; see Environment.
func StartChild(dir, program string, args, env []string) (*Child, error) {
	c := &Child{
		cmd:    exec.Command(program, args...),
		stdout: filepath.Join(dir, "stdout.log"),
		stderr: filepath.Join(dir, "stderr.log"),
		done:   make(chan struct{}),
	}
	stdout, err := openLog(c.stdout)
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := openLog(c.stderr)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Env = stdout, stderr, env
	c.cmd.SysProcAttr = childAttributes()

	onLauncherThread(func() { err = c.cmd.Start() })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	children.Lock()
	if children.running == nil {
		children.running = make(map[*Child]struct{})
	}
	children.running[c] = struct{}{}
	children.Unlock()
	go c.wait()
	return c, nil
}

func openLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the output of a child: %w", err)
	}
	return file, nil
}

func (c *Child) wait() {
	c.err = c.cmd.Wait()
	children.Lock()
	delete(children.running, c)
	children.Unlock()
	close(c.done)
}

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err is what the child ended with, once Done is closed; see exec.Cmd.Wait.
func (c *Child) Err() error { return c.err }

// ExitCode is the child's exit code, once Done is closed; -1 when a signal ended it.
func (c *Child) ExitCode() int { return c.cmd.ProcessState.ExitCode() }

// PID is the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended tells whether the child has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Signal sends sig; that the child has ended already is not an error.
func (c *Child) Signal(sig syscall.Signal) error {
	if c.Ended() {
		return nil
	}
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, c.cmd.Path, err)
	}
	return nil
}

// Pause sends SIGSTOP and waits until the kernel has stopped the child: the signal alone returns
// earlier, and until then the child may still answer.
func (c *Child) Pause() error {
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var failed error
	asleep, _ := Poll(pauseLimit, func() (bool, string) {
		if c.Ended() {
			return true, ""
		}
		var paused bool
		paused, failed = stopped(c.PID())
		return paused || failed != nil, ""
	})
	switch {
	case c.Ended():
		return nil
	case failed != nil:
		return fmt.Errorf("pause %s: %w", c.cmd.Path, failed)
	case !asleep:
		return fmt.Errorf("%s still ran %v after SIGSTOP", c.cmd.Path, pauseLimit)
	}
	return nil
}

// Kill sends SIGKILL and waits until the child is gone.
func (c *Child) Kill() error {
	if err := c.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

// Stop sends SIGTERM and waits until the child is gone, at most 30 seconds.
func (c *Child) Stop() error {
	// A paused child gets to its SIGTERM only when it runs.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := c.Signal(sig); err != nil {
			return err
		}
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("%s did not stop within %v of SIGTERM", c.cmd.Path, stopLimit)
	}
}

// KillGroup kills whatever the child itself has started and left behind.
func (c *Child) KillGroup() {
	// The error says that nobody is left in the group, which is what is wanted.
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
}

// Stdout is what the child has printed so far.
func (c *Child) Stdout() string { return readLog(c.stdout) }

// Stderr is what the child has logged so far.
func (c *Child) Stderr() string { return readLog(c.stderr) }

// Output is Stdout followed by Stderr.
func (c *Child) Output() string { return c.Stdout() + c.Stderr() }

func readLog(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// Tail is the last part of the output, begun at a full line.
func (c *Child) Tail() string {
	out := c.Output()
	if len(out) <= shownOutput {
		return out
	}
	out = out[len(out)-shownOutput:]
	if _, rest, found := strings.Cut(out, "\n"); found {
		out = rest
	}
	return "...\n" + out
}

// Environment is this process's environment without what would configure a Doorbuster program behind the
// caller's back, and with what is added ("NAME=value").
func Environment(added ...string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "DOORBUSTER_") {
			env = append(env, variable)
		}
	}
	return append(env, added...)
}

func killAllChildren() {
	children.Lock()
	left := make([]*Child, 0, len(children.running))
	for c := range children.running {
		left = append(left, c)
	}
	children.Unlock()
	for _, c := range left {
		if err := c.Kill(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		c.KillGroup()
	}
}
