package servers

import (
	"os"
	"path/filepath"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFoldersOfDeadTestBinariesAreRemoved(t *testing.T) {
	base := t.TempDir()
	alive, dead := filepath.Join(base, "run-alive"), filepath.Join(base, "run-dead")
	for _, folder := range []string{alive, dead} {
		must(t, os.MkdirAll(filepath.Join(folder, "data"), 0o700))
	}
	lock, err := lockFile(filepath.Join(alive, "alive.lock"))
	must(t, err)
	defer lock.Close()

	removeAbandoned(base)

	if _, err := os.Stat(alive); err != nil {
		t.Errorf("the folder of a living binary: %v", err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead binary is still there: %v", err)
	}
}

func TestALockIsHeldUntilItsFileIsClosed(t *testing.T) {
	path := t.TempDir() + "/lock"
	held, err := lockFile(path)
	must(t, err)
	if _, free, err := tryLockFile(path); err != nil || free {
		t.Fatalf("a held lock was given away: free %v, error %v", free, err)
	}
	must(t, held.Close())
	again, free, err := tryLockFile(path)
	if err != nil || !free {
		t.Fatalf("a released lock was not given: free %v, error %v", free, err)
	}
	must(t, again.Close())
}
