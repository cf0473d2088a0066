package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"
)

const (
	// chunked is what fasthttp says is the length of a body whose length nobody knows yet.
	chunked = -1

	// maxDrained is how much of a body that the handler left is read to keep the
	// connection, in bytes; it is net/http's measure.
	maxDrained = 256 << 10

	// usualHeaders is how many header fields a request is expected to have.
	usualHeaders = 12
)

// exchange is one request of a fast server and the response to it. It is the
// http.ResponseWriter of the handler, and writes all of the response when the handler is done.
type exchange struct {
	ctx    *fasthttp.RequestCtx
	header http.Header
	status int
	body   *requestBody // nil without one
}

var exchanges = sync.Pool{New: func() any { return &exchange{header: make(http.Header)} }}

func newExchange(ctx *fasthttp.RequestCtx) *exchange {
	x := exchanges.Get().(*exchange)
	x.ctx = ctx
	return x
}

// connectionOf is what the listener of a fast server has accepted.
func connectionOf(ctx *fasthttp.RequestCtx) *connection { return ctx.Conn().(*connection) }

// serveExchange lets an http.Handler answer what fasthttp has read. base is the
// context of every request.
func serveExchange(base context.Context, handler http.Handler, log *slog.Logger) fasthttp.RequestHandler {
	blank := new(http.Request).WithContext(base)
	return func(ctx *fasthttp.RequestCtx) {
		x := newExchange(ctx)
		// fasthttp recovers from nothing: a panic would end the process.
		defer func() {
			if cause := recover(); cause != nil {
				abort(ctx, cause, log)
			}
		}()
		request := new(http.Request)
		*request = *blank
		if problem := x.read(request); problem != nil {
			Fail(x, request, problem)
			x.closeAfter()
		} else {
			handler.ServeHTTP(x, request)
		}
		x.end()
	}
}

// read makes an http.Request of what fasthttp has read. All of it is copied: fasthttp
// uses its memory again when the handler has returned.
func (x *exchange) read(r *http.Request) *Problem {
	header := &x.ctx.Request.Header
	r.Method = string(header.Method())
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if !header.IsHTTP11() {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	r.RequestURI = string(header.RequestURI())
	var err error
	if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil {
		return BadRequest("the path of the request cannot be read")
	}
	r.Host = string(header.Host())
	if r.Host == "" && r.ProtoMinor == 1 { // RFC 9112, 3.2
		return BadRequest("the header Host is missing")
	}
	if r.URL.Host != "" {
		r.Host = r.URL.Host // RFC 9112, 3.2.2
	}
	conn := connectionOf(x.ctx)
	r.RemoteAddr = conn.remote
	r.Header = readHeader(header)
	if asksToClose(r.Header["Connection"]) {
		x.ctx.SetConnectionClose()
	}
	r.ContentLength = int64(max(header.ContentLength(), chunked))
	if problem := checkFraming(header); problem != nil {
		return problem
	}
	if stream := x.ctx.RequestBodyStream(); stream != nil && r.ContentLength != 0 {
		x.body = &requestBody{conn: conn, stream: stream}
		r.Body = x.body
	} else {
		r.ContentLength, r.Body = 0, http.NoBody
	}
	return nil
}

// checkFraming refuses what a proxy in front of the server may take for another length of the
// body: a length beside an encoding (RFC 9112, 6.1), and the encoding "identity", which was taken
// out of HTTP. fasthttp passes over the one and the other.
func checkFraming(header *fasthttp.RequestHeader) *Problem {
	if header.ContentLength() == chunked {
		if names(header.RawHeaders(), fasthttp.HeaderContentLength) {
			return BadRequest("a Content-Length and a Transfer-Encoding contradict each other")
		}
		return nil
	}
	if names(header.RawHeaders(), fasthttp.HeaderTransferEncoding) {
		return BadRequest("the Transfer-Encoding is not one that is understood")
	}
	return nil
}

// readHeader copies the header fields, under the names that net/http gives them.
func readHeader(from *fasthttp.RequestHeader) http.Header {
	to := make(http.Header, usualHeaders)
	values := make([]string, 0, usualHeaders) // one allocation for the values of all
	for name, value := range from.All() {
		switch string(name) {
		case fasthttp.HeaderHost, fasthttp.HeaderTransferEncoding: // fields of the request
			continue
		}
		if earlier, repeated := to[string(name)]; repeated {
			to[string(name)] = append(earlier, string(value))
			continue
		}
		values = append(values, string(value))
		to[string(name)] = values[len(values)-1 : len(values) : len(values)]
	}
	return to
}

// asksToClose reports whether a client wants its connection closed. fasthttp understands it
// when nothing else is said, and in lower case.
func asksToClose(connection []string) bool {
	for _, list := range connection {
		for option := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(option, " \t"), "close") {
				return true
			}
		}
	}
	return false
}

// names reports whether one of these lines is a field of that name.
func names(lines []byte, name string) bool {
	for len(lines) > len(name) {
		if lines[len(name)] == ':' && strings.EqualFold(string(lines[:len(name)]), name) {
			return true
		}
		_, lines, _ = bytes.Cut(lines, []byte{'\n'})
	}
	return false
}

// Header is the header of the response.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader decides the status. Those before the final one are not sent.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK {
		x.status = status
	}
}

// Write appends to the body of the response.
func (x *exchange) Write(b []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	x.ctx.Response.AppendBody(b)
	return len(b), nil
}

// end completes the response, and makes sure that the next request begins where this
// one ends. The exchange must not be used after it.
func (x *exchange) end() {
	x.WriteHeader(http.StatusOK)
	response := &x.ctx.Response
	response.SetStatusCode(x.status)
	if body := response.Body(); len(body) > 0 && len(x.header["Content-Type"]) == 0 {
		response.Header.SetContentType(http.DetectContentType(body))
	}
	for name, values := range x.header {
		if name == fasthttp.HeaderContentLength { // fasthttp has counted
			continue
		}
		for _, value := range values {
			response.Header.Add(name, value)
		}
	}
	if x.body != nil && !x.body.drain() {
		x.closeAfter()
	}
	x.release()
}

// closeAfter closes the connection when the response is sent: what follows on it
// cannot be told from the rest of this request.
func (x *exchange) closeAfter() {
	x.ctx.SetConnectionClose()
	connectionOf(x.ctx).leaveUnread()
}

// abort ends an exchange whose handler panicked: without an answer, and without the
// connection. Router answers for its handlers; what comes this far is http.ErrAbortHandler,
// or a fault of the server itself.
func abort(ctx *fasthttp.RequestCtx, cause any, log *slog.Logger) {
	if err, ok := cause.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		log.Error("server panicked", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	connectionOf(ctx).end() // what fasthttp still writes goes nowhere
	ctx.SetConnectionClose()
}

// release gives the exchange to the next request.
func (x *exchange) release() {
	clear(x.header)
	x.ctx, x.status, x.body = nil, 0, nil
	exchanges.Put(x)
}

// requestBody is the body of a request, read from the connection as the handler asks for it.
type requestBody struct {
	conn   *connection
	stream io.Reader
	err    error // how it ended, io.EOF for well; nothing is read behind it
}

// Read reads on. A client that went away in the middle has not sent a body: nobody looks
// for more on the connection when a body has come to its end.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.stream.Read(p)
	if errors.Is(err, io.EOF) && b.conn.ended {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// Close does nothing: the server reads what is left.
func (b *requestBody) Close() error { return nil }

// drain reads what the handler left, and reports whether that was little enough to
// come to the end. The body cannot be read after it: its connection is at the next request.
func (b *requestBody) drain() bool {
	_, _ = io.CopyN(io.Discard, b, maxDrained+1) // Read keeps the error
	whole := errors.Is(b.err, io.EOF)
	b.err = http.ErrBodyReadAfterClose
	return whole
}
