//go:build !linux

package servers

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches the test binary
// alone. Only Linux can also tie the child's life to the test binary's.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// stopped tells whether a signal has stopped a process.
func stopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("ask ps for the state of process %d: %w", pid, err)
	}
	return bytes.HasPrefix(bytes.TrimSpace(state), []byte("T")), nil
}
