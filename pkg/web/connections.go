package web

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerTime is how long a connection is read on whose request was not read to its
	// end. If it were closed at once, the rest of the request would make the kernel reset the
	// connection, and the client might lose the answer that is on its way.
	lingerTime = 500 * time.Millisecond

	// minAcceptPause and maxAcceptPause bound the growing pause after a connection that
	// could not be accepted, usually for want of file descriptors; both as net/http has them.
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// connections are the open connections of a server.
type connections struct {
	log *slog.Logger

	mu   sync.Mutex
	open map[*connection]struct{}
}

func newConnections(log *slog.Logger) *connections {
	return &connections{log: log, open: make(map[*connection]struct{})}
}

// cut closes every connection, whatever it is doing.
func (c *connections) cut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failed error
	for conn := range c.open {
		if err := conn.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (c *connections) add(conn net.Conn) *connection {
	added := &connection{Conn: conn, all: c, remote: conn.RemoteAddr().String()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[added] = struct{}{}
	return added
}

func (c *connections) forget(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// connListener accepts connections and keeps a list of them.
type connListener struct {
	net.Listener
	conns  *connections
	closed chan struct{}
	once   sync.Once
}

func newConnListener(listener net.Listener, conns *connections) *connListener {
	return &connListener{Listener: listener, conns: conns, closed: make(chan struct{})}
}

// Close ends Accept.
func (l *connListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Accept waits for a connection. It tries again when there was one that could not be
// accepted, as net/http does: fasthttp would give up serving.
func (l *connListener) Accept() (net.Conn, error) {
	pause := minAcceptPause
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			return l.conns.add(conn), nil
		}
		//nolint:staticcheck // deprecated, and still what net/http asks about an error of Accept
		if passing, ok := errors.AsType[net.Error](err); !ok || !passing.Temporary() {
			return nil, err
		}
		l.conns.log.Warn("connection not accepted", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-l.closed:
		}
		pause = min(2*pause, maxAcceptPause)
	}
}

// connection is one connection of a client.
type connection struct {
	net.Conn
	all    *connections
	remote string // its address, made once: each request has it
	unread atomic.Bool
}

// leaveUnread has Close linger: the client may still be sending.
func (c *connection) leaveUnread() { c.unread.Store(true) }

// Close closes the connection; when a request was left unread, only after the client
// has had the time to read its answer.
func (c *connection) Close() error {
	c.all.forget(c)
	if c.unread.Swap(false) {
		c.linger()
	}
	return c.Conn.Close()
}

// linger says that nothing more will come, and reads what still does. None of its errors
// matters: the connection is closed next.
func (c *connection) linger() {
	if writer, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = writer.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.Conn)
}
