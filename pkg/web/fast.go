package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
)

// maxConnections bounds the connections of a fast server; each further one hears 503.
const maxConnections = 256 << 10

// fastServer serves an http.Handler by fasthttp, which needs less CPU for a small request
// than net/http (BenchmarkSmallRequest): among others, no goroutine watches each
// connection while its request is being answered.
//
// The protocol is fasthttp's part; what handlers see, and what clients see of them, is
// that of net/http, but for what Server.Fast says.
type fastServer struct {
	http  fasthttp.Server
	conns *connections
}

func newFastServer(ctx context.Context, handler http.Handler, log *slog.Logger) *fastServer {
	return &fastServer{
		http: fasthttp.Server{
			Handler:        serveExchange(ctx, handler, log),
			ErrorHandler:   answerUnread,
			HeaderReceived: allowBody,
			ConnState:      changed,
			// Until its header is there, a request has the time of a header.
			ReadTimeout:     readHeaderTimeout,
			IdleTimeout:     idleTimeout,
			ReadBufferSize:  maxHeaderBytes, // a header must fit in
			Concurrency:     maxConnections,
			CloseOnShutdown: true,
			// Besides saving memory, this sends an answer at once also when the next request is there
			// already: else it would wait for the answer to that, and be lost with it.
			ReduceMemoryUsage: true,
			// A body is read by the handler, which knows who asks and how much is allowed.
			StreamRequestBody:            true,
			DisablePreParseMultipartForm: true,
			NoDefaultServerHeader:        true,
			NoDefaultContentType:         true,
			// A request that cannot be read may hold a token: neither of these quotes it.
			SecureErrorLogMessage: true,
			Logger:                fastLog{log},
		},
		conns: newConnections(log),
	}
}

// Serve accepts connections until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *fastServer) Serve(listener net.Listener) error {
	if err := s.http.Serve(newConnListener(listener, s.conns)); err != nil {
		return err
	}
	return http.ErrServerClosed
}

// Shutdown accepts no more connections, closes those that are idle, and waits until
// the others have been answered, or ctx ends.
func (s *fastServer) Shutdown(ctx context.Context) error {
	s.conns.stop()
	return s.http.ShutdownWithContext(ctx)
}

// Close cuts off every connection.
func (s *fastServer) Close() error { return s.conns.cut() }

// allowBody gives a request with a body the time to send it, and, when the client waits for that,
// has fasthttp tell it to go on. Nobody else may be told: HTTP/1.0 would take it for the answer.
func allowBody(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	length := header.ContentLength()
	sends := length > 0 || length == chunked
	if expected := string(header.Peek(fasthttp.HeaderExpect)); expected != "" {
		header.Del(fasthttp.HeaderExpect)
		if sends && header.IsHTTP11() && strings.EqualFold(expected, "100-continue") {
			header.Set(fasthttp.HeaderExpect, "100-continue") // as fasthttp wants it spelled
		}
	}
	if !sends {
		return fasthttp.RequestConfig{}
	}
	return fasthttp.RequestConfig{ReadTimeout: readTimeout}
}

// answerUnread answers what could not be read as a request. Who sent too little in
// its time hears nothing: a connection that was opened early must not find an answer on it.
func answerUnread(ctx *fasthttp.RequestCtx, err error) {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		connectionOf(ctx).end()
		return
	}
	problem := BadRequest("this is not a valid HTTP request")
	if _, ok := errors.AsType[*fasthttp.ErrSmallBuffer](err); ok {
		status := http.StatusRequestHeaderFieldsTooLarge
		problem = NewProblem(status, CodeBadRequest, "the header of the request is larger than 16 KiB")
	}
	x := newExchange(ctx)
	Fail(x, nil, problem)
	x.closeAfter()
	x.end()
}

// fastLog hands on what fasthttp complains about.
type fastLog struct{ log *slog.Logger }

// Printf logs one line, unless it is about a single connection: that is the client's
// doing, who has been answered, and the line would quote what was sent.
func (l fastLog) Printf(format string, v ...any) {
	if !strings.HasPrefix(format, "error when serving connection") {
		l.log.Warn("http server reports", "text", fmt.Sprintf(format, v...))
	}
}
