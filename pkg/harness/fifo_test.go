package harness

import (
	"path/filepath"
	"syscall"
	"testing"
)

// fifo returns a pipe that nobody ever writes to: whoever reads it waits until a signal.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(path, 0o600))
	return path
}
