package web

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// dialed opens a connection that does not outlive the test, nor block it.
func dialed(t *testing.T, r *running) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn.(*net.TCPConn)
}

// say sends text over a connection.
func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// statusLine reads the first line of a response.
func statusLine(t *testing.T, conn net.Conn) string {
	t.Helper()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(line)
}

// A client that goes away in the middle of its order must not get another one than it was sending.
func TestABodyThatBreaksOffIsNotABody(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		r := startHandlers(t, fast)
		chunks := head("POST", "/", "Transfer-Encoding: chunked")
		for name, text := range map[string]string{
			"before the first chunk": chunks,
			"between chunks":         chunks + "2\r\n{}\r\n",
			"in a chunk":             chunks + "5\r\n{}",
			"before the last line":   chunks + "2\r\n{}\r\n0\r\n",
			"of a small body":        head("POST", "/", "Content-Length: 20") + "{}",
			"of a large body":        head("POST", "/", "Content-Length: 20000") + "{}" + strings.Repeat(" ", 10000),
		} {
			conn := dialed(t, r)
			say(t, conn, text)
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := statusLine(t, conn); got != "HTTP/1.1 400 Bad Request" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

func TestAnAnswerDoesNotWaitForTheNextRequest(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		conn := dialed(t, startHandlers(t, fast))
		say(t, conn, head("GET", "/unread")+head("POST", "/", "Content-Length: 10")+"short")
		if got := statusLine(t, conn); got != "HTTP/1.1 201 Created" {
			t.Error(got)
		}
	})
}

// What is not the answer must not be sent to who cannot tell it from the answer.
func TestOnlyWhoWaitsIsToldToContinue(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		r := startHandlers(t, fast)
		for text, want := range map[string]string{
			head("POST", "/", "Expect: 100-continue", "Content-Length: 2"):                  "HTTP/1.1 100 Continue",
			head("POST", "/", "Expect: 100-Continue", "Transfer-Encoding: chunked"):         "HTTP/1.1 100 Continue",
			head("GET", "/", "Expect: 100-continue"):                                        "HTTP/1.1 200 OK",
			"POST /half HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc":   "202 Accepted",
			"POST /half HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n": "202 Accepted",
		} {
			conn := dialed(t, r)
			say(t, conn, text)
			if got := statusLine(t, conn); !strings.HasSuffix(got, want) { // net/http answers 1.0 as 1.0
				t.Errorf("%q: %s", text, got)
			}
		}
	})
}

// newConnection returns a connection of a fast server, and the client's end of it.
func newConnection(t *testing.T) (held *connection, client net.Conn) {
	t.Helper()
	server, client := net.Pipe()
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	held, taken := newConnections(discardLog()).add(server)
	if !taken {
		t.Fatal("the connection was not taken")
	}
	return held, client
}

// A connection may be idle for longer than an answer may take.
func TestWhateverIsWrittenHasItsOwnTime(t *testing.T) {
	conn, client := newConnection(t)
	_ = conn.SetWriteDeadline(time.Now().Add(-time.Second))
	go func() { _, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n") }()
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	if got := statusLine(t, client); got != "HTTP/1.1 100 Continue" {
		t.Error(got)
	}
}

func TestAnIdleConnectionCanBeClosedAndABusyOneEnds(t *testing.T) {
	for _, states := range [][]fasthttp.ConnState{
		{fasthttp.StateNew},
		{fasthttp.StateNew, fasthttp.StateActive, fasthttp.StateIdle},
		{fasthttp.StateNew, fasthttp.StateActive, fasthttp.StateClosed},
	} {
		conn, client := newConnection(t)
		for _, state := range states {
			changed(conn, state)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after %v: %v", states, err)
		}
		if left := len(conn.all.open); left > 0 {
			t.Errorf("after %v, %d connections are kept in mind", states, left)
		}
	}
}

// A server that stops finds a connection idle, and closes it when a request has just come:
// whatever that request did must be told.
func TestTheAnswerToARequestThatComesAsItsConnectionIsClosedArrives(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var server *fastServer
	server = newFastServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		server.conns.mu.Lock()
		open := slices.Collect(maps.Keys(server.conns.open))
		server.conns.mu.Unlock()
		for _, conn := range open {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		w.WriteHeader(http.StatusCreated)
	}), discardLog())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn := dialed(t, &running{url: listener.Addr().String()})
	say(t, conn, head("GET", "/"))
	if got := statusLine(t, conn); got != "HTTP/1.1 201 Created" {
		t.Error(got)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was left open")
	}
}

// The process is told to stop while it starts: who comes in between is served by nobody.
func TestAServerThatWasStoppedTakesNoConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	server := newFastServer(t.Context(), http.HandlerFunc(mirror), discardLog())
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if got, closed := talk(t, &running{url: listener.Addr().String()}, head("GET", "/"), "GET"); len(got) > 0 || !closed {
		t.Errorf("%+v", got)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
