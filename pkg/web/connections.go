package web

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
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

	mu      sync.Mutex
	open    map[*connection]struct{}
	stopped bool
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

// stop takes no more connections from here on, not even for a server that has yet to begin.
func (c *connections) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// add takes a connection, or closes it when the server has stopped.
func (c *connections) add(conn net.Conn) (added *connection, taken bool) {
	added = &connection{Conn: conn, all: c, remote: conn.RemoteAddr().String()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		_ = conn.Close()
		return nil, false
	}
	c.open[added] = struct{}{}
	return added, true
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
			added, taken := l.conns.add(conn)
			if !taken {
				return nil, net.ErrClosed
			}
			return added, nil
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
	ended  bool   // the client has sent all that it will; for who reads
	unread atomic.Bool

	mu     sync.Mutex
	busy   bool // with a request, from its first byte until its answer is sent
	closed bool
}

// Read reads on, and remembers when there is no more: fasthttp takes that for the end of a body.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		c.ended = true
	}
	return n, err
}

// Write writes on, and has the time of an answer for it. fasthttp would set a deadline for answers
// alone, and write what comes before the next one, perhaps minutes later, under the same.
func (c *connection) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// leaveUnread has the closing linger: the client may still be sending.
func (c *connection) leaveUnread() { c.unread.Store(true) }

// changed hears from fasthttp what becomes of a connection.
func changed(conn net.Conn, state fasthttp.ConnState) {
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	switch state {
	case fasthttp.StateActive, fasthttp.StateIdle:
		c.mu.Lock()
		c.busy = state == fasthttp.StateActive
		c.mu.Unlock()
	case fasthttp.StateClosed:
		c.end()
	}
}

// Close closes a connection that has no request. A server that stops looks for idle connections
// and then closes them: if a request came in between, its answer is still written, and changed
// ends the connection after it.
func (c *connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.closed {
		return nil
	}
	c.closed = true
	c.all.forget(c)
	return c.Conn.Close()
}

// end closes the connection, whatever it is doing; when a request was left unread, only after the
// client has had the time to read its answer.
func (c *connection) end() {
	c.mu.Lock()
	ended := c.closed
	c.closed = true
	c.mu.Unlock()
	if ended {
		return
	}
	c.all.forget(c)
	if c.unread.Load() {
		c.linger()
	}
	_ = c.Conn.Close() // nobody is left to be told
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
