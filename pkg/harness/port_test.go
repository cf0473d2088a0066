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
