package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mirror answers with all that a handler can learn of a request.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		Fail(w, r, BadRequest("the body breaks off"))
		return
	}
	again, _ := r.Body.Read(make([]byte, 1))
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s %d.%d\nurl %q %q %q host %q\nlength %d body %q and %d\naddress %t\n", r.Method, r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor,
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.Host, r.ContentLength, body, again, strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if name == "Content-Length" || name == "Connection" {
			continue // the server's own; the request has the length in a field, and the rest is between server and client
		}
		fmt.Fprintf(&text, "%s: %q\n", name, r.Header[name])
	}
	w.Header().Add("X-Many", "one")
	w.Header().Add("X-Many", "two")
	_, _ = io.WriteString(w, text.String())
}

// startHandlers runs a server whose handlers treat requests in every way that matters to it.
func startHandlers(t *testing.T, fast bool) *running {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", mirror)
	mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusCreated, BadRequest("")) })
	mux.HandleFunc("/half", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("/decode", func(w http.ResponseWriter, r *http.Request) {
		value, problem := Decode[map[string]any](r)
		if problem != nil {
			Fail(w, r, problem)
			return
		}
		Write(w, http.StatusOK, value)
	})
	mux.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK) // too late
		_, _ = io.WriteString(w, "<html>tea</html>")
	})
	mux.HandleFunc("/close", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	return start(t, &Server{Fast: fast, Handler: mux, ShutdownTimeout: time.Second})
}

// answer is what a client sees of a response.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Close  bool
}

// talk sends text over a new connection and reads responses, to requests of these
// methods, until the server closes the connection or has answered all of them.
func talk(t *testing.T, r *running, text string, methods ...string) (answers []answer, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	go func() { _, _ = io.WriteString(conn, text) }() // the server may answer before it has read all
	reader := bufio.NewReader(conn)
	for _, method := range methods {
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			return answers, true
		}
		for response.StatusCode == http.StatusContinue {
			if response, err = http.ReadResponse(reader, &http.Request{Method: method}); err != nil {
				return answers, true
			}
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Errorf("body of a response: %v", err)
		}
		_ = response.Body.Close()
		if response.Header.Get("Date") == "" {
			t.Error("a response without a date")
		}
		response.Header.Del("Date")
		answers = append(answers, answer{response.StatusCode, response.Header, string(body), response.Close})
		if response.Close {
			return answers, true
		}
	}
	return answers, false
}

// head is the first lines of a request.
func head(method, path string, lines ...string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: shop\r\n" + strings.Join(append(lines, "\r\n"), "\r\n")
}

func TestBothEnginesShowAHandlerTheSameAndItsClientToo(t *testing.T) {
	slow, fast := startHandlers(t, false), startHandlers(t, true)
	large := `{"a":"` + strings.Repeat("b", 40<<10) + `"}`
	for name, text := range map[string]string{
		"no body":               head("GET", "/a/b?c=d"),
		"an escaped path":       head("GET", "/a%2Fb/%E2%82%AC?x=%20+"),
		"an unclean path":       head("GET", "/a//b/../c"),
		"an absolute target":    head("GET", "http://other/path?q"),
		"a repeated field":      head("GET", "/", "X-User-ID: one", "x-user-id: two", "X-USER-ID:three"),
		"an empty field":        head("GET", "/", "Idempotency-Key:", "Authorization:   Bearer  x  "),
		"fields for proxies":    head("GET", "/", "X-Forwarded-For: 1.2.3.4, 5.6.7.8", "X-Forwarded-For: 9.9.9.9", "Forwarded: for=\"[::1]\""),
		"cookies and agents":    head("GET", "/", "Cookie: a=b; c=d", "User-Agent: me", "Accept: */*"),
		"a folded field":        head("POST", "/", "X-A: b", " Transfer-Encoding: chunked"),
		"not quite ASCII":       head("GET", "/", "X-Name: caf\xc3\xa9"),
		"a body":                head("POST", "/", "Content-Type: application/json", "Content-Length: 7") + `{"a":1}`,
		"an empty body":         head("POST", "/", "Content-Length: 0"),
		"a chunked body":        head("POST", "/", "Transfer-Encoding: chunked") + "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\n\r\n",
		"an empty chunked":      head("POST", "/", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		"a large body":          head("POST", "/decode", "Content-Length: "+strconv.Itoa(len(large))) + large,
		"a body too large":      head("POST", "/decode", "Content-Length: 70000") + strings.Repeat("x", 70000),
		"chunks too large":      head("POST", "/decode", "Transfer-Encoding: chunked") + "11170\r\n" + strings.Repeat("x", 70000) + "\r\n0\r\n\r\n",
		"a body not JSON":       head("POST", "/decode", "Content-Length: 3") + "{a}",
		"an unread body":        head("POST", "/unread", "Content-Length: 5") + "12345",
		"unread chunks":         head("POST", "/unread", "Transfer-Encoding: chunked") + "5\r\n12345\r\n0\r\n\r\n",
		"a body half read":      head("POST", "/half", "Content-Length: 9") + "123456789",
		"chunks half read":      head("POST", "/half", "Transfer-Encoding: chunked") + "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n",
		"a promised body":       head("POST", "/", "Expect: 100-continue", "Content-Length: 2") + "ok",
		"a form":                head("POST", "/", "Content-Type: multipart/form-data; boundary=b", "Content-Length: 59") + "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--\r\n",
		"no answer":             head("GET", "/silent"),
		"no content":            head("GET", "/gone"),
		"a second status":       head("GET", "/hints"),
		"a handler that closes": head("GET", "/close"),
		"a client that closes":  head("GET", "/", "Connection: close"),
		"Close in capitals":     head("GET", "/", "Connection: Close"),
		"close among others":    head("GET", "/", "Connection: TE, close"),
		"an unknown method":     head("BREW", "/"),
		"HTTP 1.0":              "GET /old HTTP/1.0\r\n\r\n",
		"HTTP 1.0 kept alive":   "GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	} {
		method, _, _ := strings.Cut(strings.TrimSpace(text), " ")
		next := head("GET", "/next")
		want, wantClosed := talk(t, slow, text+next, method, "GET")
		got, gotClosed := talk(t, fast, text+next, method, "GET")
		if fmt.Sprint(got, gotClosed) != fmt.Sprint(want, wantClosed) {
			t.Errorf("%s:\nfasthttp %t %+v\nnet/http %t %+v", name, gotClosed, got, wantClosed, want)
		}
		if len(want) == 0 {
			t.Errorf("%s: there was no answer", name)
		}
	}
}

func TestAHeadRequestIsAnsweredWithoutABody(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		got, _ := talk(t, startHandlers(t, fast), head("HEAD", "/unread")+head("GET", "/next"), "HEAD", "GET")
		if len(got) != 2 || got[0].Body != "" || got[0].Header.Get("Content-Length") == "0" || !strings.HasPrefix(got[1].Body, "GET /next") {
			t.Errorf("%+v", got)
		}
	})
}

// What can be read in two ways is refused, and nothing behind it is taken for a request.
func TestAmbiguousRequestsEndTheConnection(t *testing.T) {
	r := startHandlers(t, true)
	hidden := head("GET", "/hidden")
	for name, text := range map[string]string{
		"two lengths":               head("POST", "/", "Content-Length: 5", "Content-Length: 50") + "12345",
		"a length that is none":     head("POST", "/", "Content-Length: 5x") + "12345",
		"a signed length":           head("POST", "/", "Content-Length: +5") + "12345",
		"a length and an encoding":  head("POST", "/", "Content-Length: 3", "Transfer-Encoding: chunked") + "5\r\nabcde\r\n0\r\n\r\n",
		"two encodings":             head("POST", "/", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		"an unknown encoding":       head("POST", "/", "Transfer-Encoding: xchunked") + "0\r\n\r\n",
		"an encoding that is none":  head("POST", "/", "Content-Length: 5", "transfer-encoding:\r\n identity") + "12345",
		"no length and no encoding": head("POST", "/", "Transfer-Encoding: identity"),
		"a space before a colon":    head("POST", "/", "Transfer-Encoding : chunked") + "0\r\n\r\n",
		"a line without a colon":    head("POST", "/", "nonsense"),
		"a zero byte":               head("POST", "/", "X-A: b\x00c"),
		"two hosts":                 head("GET", "/", "Host: other"),
		"no host":                   "GET / HTTP/1.1\r\n\r\n",
		"no path":                   "GET HTTP/1.1\r\nHost: shop\r\n\r\n",
		"a relative path":           head("GET", "relative"),
		"another protocol":          "GET / SHOP/1.1\r\nHost: shop\r\n\r\n",
		"a chunk size that is none": head("POST", "/", "Transfer-Encoding: chunked") + "zz\r\nabc\r\n0\r\n\r\n",
		"a chunk that is longer":    head("POST", "/", "Transfer-Encoding: chunked") + "3\r\nabcdef\r\n0\r\n\r\n",
		"a broken unread chunk":     head("POST", "/unread", "Transfer-Encoding: chunked") + "3\r\nabcdef\r\n0\r\n\r\n",
		"chunks in HTTP 1.0":        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		got, closed := talk(t, r, text+hidden, "POST", "GET")
		if !closed || len(got) > 1 {
			t.Errorf("%s: the connection goes on: %+v", name, got)
		}
		if len(got) == 1 && strings.Contains(got[0].Body, "/hidden") {
			t.Errorf("%s: what was hidden was read: %+v", name, got)
		}
		if len(got) == 0 || got[0].Status/100 != 4 && !strings.HasPrefix(name, "a broken unread") {
			t.Errorf("%s: %+v", name, got)
		}
		for _, a := range got {
			if a.Status/100 == 4 && a.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
}

func TestTheAnswerToABodyFarTooLargeArrives(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		size := 8 << 20
		text := head("POST", "/decode", "Content-Length: "+strconv.Itoa(size)) + strings.Repeat("x", size)
		got, closed := talk(t, startHandlers(t, fast), text+head("GET", "/hidden"), "POST", "GET")
		if len(got) != 1 || got[0].Status != http.StatusRequestEntityTooLarge || !closed {
			t.Errorf("closed %t: %+v", closed, got)
		}
	})
}

func TestAnAbortedRequestEndsItsConnectionAlone(t *testing.T) {
	onBothEngines(t, func(t *testing.T, fast bool) {
		t.Helper()
		r := start(t, &Server{Fast: fast, ShutdownTimeout: time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/abort":
				panic(http.ErrAbortHandler)
			case "/panic":
				panic("a fault")
			}
		})})
		for _, path := range []string{"/abort", "/panic"} {
			if got, closed := talk(t, r, head("GET", path)+head("GET", "/"), "GET", "GET"); len(got) > 0 || !closed {
				t.Errorf("%s: %+v", path, got)
			}
		}
		if status, _, err := r.get(t, "/"); err != nil || status != http.StatusOK {
			t.Errorf("the server: %d %v", status, err)
		}
	})
}

// A connection that is opened early, or sends slowly, finds no answer on it.
func TestAHeaderThatTakesTooLongIsCutOffInSilence(t *testing.T) {
	t.Parallel() // it waits
	r := startHandlers(t, true)
	var wg sync.WaitGroup
	for _, text := range []string{"", "GET / HTTP/1.1\r\nHost: sh"} {
		wg.Go(func() {
			began := time.Now()
			if got, closed := talk(t, r, text, "GET"); len(got) > 0 || !closed {
				t.Errorf("after %q: %+v", text, got)
			}
			if took := time.Since(began); took < readHeaderTimeout || took > 2*readHeaderTimeout {
				t.Errorf("after %q it was closed after %v", text, took)
			}
		})
	}
	wg.Wait()
}

// A sender that is slower than a header may be has still time for its body.
func TestABodyHasMoreTimeThanAHeader(t *testing.T) {
	t.Parallel() // it waits
	r := startHandlers(t, true)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, head("POST", "/", "Content-Length: 5")+"slo"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(readHeaderTimeout + time.Second))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, "ow"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if !strings.Contains(string(body), `body "sloow"`) {
		t.Errorf("%s", body)
	}
}

// Many clients at once, each with its own words: nobody is shown another's.
func TestRequestsDoNotShareWhatTheyHold(t *testing.T) {
	r := startHandlers(t, true)
	const clients, requests = 32, 50
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for n := range requests {
				mark := fmt.Sprintf("client-%d-%d", client, n)
				body := strings.Repeat(mark, 1+n)
				got, _ := talk(t, r, head("POST", "/"+mark, "X-Mark: "+mark, "Content-Length: "+strconv.Itoa(len(body)))+body, "POST")
				if len(got) != 1 || strings.Count(got[0].Body, mark) != 4+n {
					t.Errorf("%s: %+v", mark, got)
				}
			}
		})
	}
	wg.Wait()
}

// refusing is a listener whose first connections cannot be accepted.
type refusing struct {
	net.Listener
	left int
}

func (l *refusing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// At the minute a sale opens there may be too few file descriptors for a while.
func TestTheServerLivesThroughConnectionsItCannotAccept(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := newFastServer(t.Context(), http.HandlerFunc(mirror), slog.New(slog.NewTextHandler(&log, nil)))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(&refusing{Listener: listener, left: 3}) }()
	if got, _ := talk(t, &running{url: listener.Addr().String()}, head("GET", "/")+head("GET", "/", "Connection: close"), "GET", "GET"); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "connection not accepted"); got != 3 {
		t.Errorf("told %d times: %s", got, log.String())
	}
}
