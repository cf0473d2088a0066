package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Folder is where embedded backends keep what outlives the process. One process
// at a time may have it.
type Folder struct {
	path      string
	lock      *os.File
	temporary bool
}

// ErrInUse says that another process has the folder.
var ErrInUse = errors.New("another process uses this folder")

// OpenFolder takes a folder, which is made when missing, until Close. An empty
// path takes a temporary folder, which Close removes.
func OpenFolder(path string) (*Folder, error) {
	f := &Folder{path: path, temporary: path == ""}
	var err error
	if f.temporary {
		f.path, err = os.MkdirTemp("", "doorbuster-")
	} else {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	if err := f.take(); err != nil {
		return nil, err
	}
	return f, nil
}

// take locks the folder; the kernel frees the lock when the process dies.
func (f *Folder) take() error {
	lock, err := os.OpenFile(filepath.Join(f.path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the data folder: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return errors.Join(fmt.Errorf("data folder %s: %w", f.path, err), lock.Close())
	}
	f.lock = lock
	return nil
}

// Path is the folder's path.
func (f *Folder) Path() string { return f.path }

// Ledger is the path of the SQLite file.
func (f *Folder) Ledger() string { return filepath.Join(f.path, "ledger.sqlite") }

// Close gives the folder up.
func (f *Folder) Close() error {
	var err error
	if f.temporary {
		err = os.RemoveAll(f.path)
	}
	return errors.Join(err, f.lock.Close())
}
