package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// run is this process's folder for everything temporary. It is locked as long as the process lives, so
// that later processes can tell the folder of a dead one and remove it.
var run struct {
	sync.Mutex
	path string
	lock *os.File
}

// baseFolder holds the run folders and the port reservations of this user.
func baseFolder() (string, error) {
	path := filepath.Join(os.TempDir(), "doorbuster-servers-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("create the folder of private servers: %w", err)
	}
	return path, nil
}

// cacheFolder keeps what is costly to make and the same for every run.
func cacheFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return baseFolder() // No home folder, as in some containers.
	}
	path := filepath.Join(cache, "doorbuster-servers")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return baseFolder() // A home folder that cannot be written, likewise.
	}
	return path, nil
}

// runFolder returns this process's folder, created on first use.
func runFolder() (string, error) {
	run.Lock()
	defer run.Unlock()
	if run.path != "" {
		return run.path, nil
	}
	base, err := baseFolder()
	if err != nil {
		return "", err
	}
	// Nobody may take a folder for abandoned between its creation and its lock.
	sweep, err := lockFile(filepath.Join(base, "sweep.lock"))
	if err != nil {
		return "", err
	}
	defer sweep.Close()
	removeAbandoned(base)
	path, err := os.MkdirTemp(base, "run-")
	if err != nil {
		return "", fmt.Errorf("create the run folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(path, "alive.lock"))
	if err != nil {
		return "", err
	}
	run.path, run.lock = path, lock
	return path, nil
}

// removeAbandoned removes the run folders whose process is dead. What cannot be removed stays for the
// next time: it is only disk space.
func removeAbandoned(base string) {
	folders, err := filepath.Glob(filepath.Join(base, "run-*"))
	if err != nil {
		return
	}
	for _, folder := range folders {
		lock, free, err := tryLockFile(filepath.Join(folder, "alive.lock"))
		if err != nil || !free {
			continue
		}
		_ = os.RemoveAll(folder)
		_ = lock.Close()
	}
}

func removeRunFolder() {
	run.Lock()
	defer run.Unlock()
	if run.path == "" {
		return
	}
	if err := os.RemoveAll(run.path); err != nil {
		fmt.Fprintf(os.Stderr, "remove the run folder: %v\n", err)
	}
	_ = run.lock.Close()
	run.path, run.lock = "", nil
}

// NewFolder creates an empty folder with a short path (a Unix socket's may have 104 bytes) among this
// process's. CleanUp removes it, if nobody has done so before.
func NewFolder(prefix string) (string, error) {
	parent, err := runFolder()
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(parent, prefix+"-")
	if err != nil {
		return "", fmt.Errorf("create a folder for %s: %w", prefix, err)
	}
	return folder, nil
}
