package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Ports are taken below the range from which Linux (32768 up) and macOS (49152 up) number outgoing
// connections. Otherwise any client could be given the port of a server that is down, and the server
// could not come back.
const (
	firstPort    = 12000
	lastPort     = 31999
	portAttempts = 200
)

// Port is a loopback TCP port that no other user of this package will pick while it is held.
type Port struct {
	number int
	lock   *os.File
}

// Release gives the port back.
func (p *Port) Release() {
	_ = p.lock.Close()
}

// Number is the port's number.
func (p *Port) Number() int { return p.number }

// Addr is "127.0.0.1:number".
func (p *Port) Addr() string { return loopback(p.number) }

func loopback(number int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
}

// ReservePort finds a port that nobody listens on and that nobody else has reserved.
func ReservePort() (*Port, error) {
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
			return &Port{number: number, lock: lock}, nil
		}
		_ = lock.Close()
	}
	return nil, errors.New("no free port found")
}
