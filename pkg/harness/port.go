package harness

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// Addr returns a free loopback address ("127.0.0.1:12345") that no other test binary will use until the
// test ends.
func Addr(t testing.TB) string {
	t.Helper()
	return reservePort(t).Addr()
}

func reservePort(t testing.TB) *servers.Port {
	t.Helper()
	p, err := servers.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}
