package servers

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches the test binary
// alone, and has the kernel kill the child when the test binary dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
