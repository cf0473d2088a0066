package servers

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile locks path against other processes (and other opens in this one) until the returned file is
// closed; the kernel also frees the lock when the process dies.
func lockFile(path string) (*os.File, error) {
	file, err := openLockFile(path)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// tryLockFile is lockFile without waiting: free tells whether the lock was taken.
func tryLockFile(path string) (file *os.File, free bool, err error) {
	file, err = openLockFile(path)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, true, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

func openLockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return file, nil
}
