//go:build !linux

package servers

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches the test binary
// alone. Only Linux can also tie the child's life to the test binary's.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
