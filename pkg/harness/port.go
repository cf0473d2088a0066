package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Ports are taken below the range from which Linux (32768 up) and macOS (49152 up) number outgoing
// connections. Otherwise any client could be given the port of a server that is down, and the server
// could not come back.
const (
	firstPort    = 12000
	lastPort     = 31999
	portAttempts = 200
)

// port is a loopback TCP port that no other test binary will pick while it is held.
type port struct {
	number int
	lock   *os.File
}

func (p *port) release() {
	_ = p.lock.Close()
}

func (p *port) addr() string {
	return loopback(p.number)
}

func loopback(number int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
}

// reservePort finds a port that nobody listens on and that no other test binary has reserved.
func reservePort() (*port, error) {
	base, err := baseFolder()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(base, "ports")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of reserved ports: %w", err)
	}
	for range portAttempts {
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, free, err := tryLockFile(filepath.Join(folder, strconv.Itoa(number)))
		if err != nil {
			return nil, err
		}
		if !free {
			continue
		}
		if listener, err := net.Listen("tcp", loopback(number)); err == nil {
			_ = listener.Close()
			return &port{number: number, lock: lock}, nil
		}
		_ = lock.Close()
	}
	return nil, errors.New("no free port found")
}

// Addr returns a free loopback address ("127.0.0.1:12345") that no other test binary will use until the
// test ends.
func Addr(t testing.TB) string {
	t.Helper()
	p, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.release)
	return p.addr()
}
