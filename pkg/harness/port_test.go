package harness

import (
	"net"
	"testing"
)

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func TestReservedPortsAreFreeAndDifferent(t *testing.T) {
	taken := map[string]bool{}
	for range 50 {
		addr := Addr(t)
		if taken[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		taken[addr] = true
		listener, err := net.Listen("tcp", addr)
		must(t, err)
		must(t, listener.Close())
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
