package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// stopLimit bounds a polite stop; after it the test fails.
	stopLimit = 30 * time.Second
	// shownOutput is how much of a child's output a failed test prints, in bytes from the end.
	shownOutput = 8 << 10
)

// child is one run of one child process. Its output goes to files, so that it costs no goroutine.
type child struct {
	cmd            *exec.Cmd
	stdout, stderr string        // paths
	done           chan struct{} // closed once the process has been waited for
	err            error         // what Wait returned; valid after done
}

// children holds every child that has not ended yet.
var children struct {
	sync.Mutex
	running map[*child]struct{}
}

// startChild starts program with its output appended to stdout.log and stderr.log in dir.
func startChild(dir, program string, args, env []string) (*child, error) {
	c := &child{
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
		children.running = make(map[*child]struct{})
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

func (c *child) wait() {
	c.err = c.cmd.Wait()
	children.Lock()
	delete(children.running, c)
	children.Unlock()
	close(c.done)
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// signal sends sig; that the child has ended already is not an error.
func (c *child) signal(sig syscall.Signal) error {
	if c.ended() {
		return nil
	}
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, c.cmd.Path, err)
	}
	return nil
}

// kill sends SIGKILL and waits until the child is gone.
func (c *child) kill() error {
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

// stop sends SIGTERM and waits until the child is gone, at most stopLimit.
func (c *child) stop() error {
	// A paused child gets to its SIGTERM only when it runs.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := c.signal(sig); err != nil {
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

// killGroup kills whatever the child itself has started and left behind.
func (c *child) killGroup() {
	// The error says that nobody is left in the group, which is what is wanted.
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
}

func (c *child) output() string {
	return readLog(c.stdout) + readLog(c.stderr)
}

func readLog(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// tail is the last part of the output, begun at a full line.
func (c *child) tail() string {
	out := c.output()
	if len(out) <= shownOutput {
		return out
	}
	out = out[len(out)-shownOutput:]
	if _, rest, found := strings.Cut(out, "\n"); found {
		out = rest
	}
	return "...\n" + out
}

// showOnFailure prints the end of the output when the test has failed.
func (c *child) showOnFailure(t testing.TB, name string) {
	t.Helper()
	if t.Failed() {
		t.Logf("output of %s:\n%s", name, c.tail())
	}
}

func killAllChildren() {
	children.Lock()
	left := make([]*child, 0, len(children.running))
	for c := range children.running {
		left = append(left, c)
	}
	children.Unlock()
	for _, c := range left {
		if err := c.kill(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		c.killGroup()
	}
}
