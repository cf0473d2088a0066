package web

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// NoSuchPath is the detail of the 404 for a path that the service does not have: by it a client
// tells a wrong service from a thing that is missing.
const NoSuchPath = "there is no such path"

// unmatched is the route label of requests for paths that do not exist.
const unmatched = "unmatched"

// Router is http.ServeMux with what every service needs around each handler:
// request metrics by pattern, problems instead of text for unknown paths and
// wrong methods, recovery from panics, request ids, and an access log at debug.
type Router struct {
	mux     *http.ServeMux
	metrics *telemetry.HTTPMetrics
	missed  *telemetry.HTTPRoute
	log     *slog.Logger
}

// NewRouter returns a Router without routes.
func NewRouter(metrics *telemetry.HTTPMetrics, log *slog.Logger) *Router {
	return &Router{
		mux:     http.NewServeMux(),
		metrics: metrics,
		missed:  metrics.Route(unmatched, "other"),
		log:     log,
	}
}

// Handle registers a handler for a pattern of http.ServeMux such as
// "POST /v1/sales/{sale_id}/grabs".
func (rt *Router) Handle(pattern string, handler http.Handler) {
	method, route, found := strings.Cut(pattern, " ")
	if !found {
		method, route = "other", pattern
	}
	rt.handle(pattern, rt.metrics.Route(route, method), handler)
}

func (rt *Router) handle(pattern string, counted *telemetry.HTTPRoute, handler http.Handler) {
	rt.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rec, ok := w.(*recorder); ok {
			rec.route = counted
		}
		handler.ServeHTTP(w, r)
	}))
}

// Otherwise answers every request that no other route takes with p, instead of with
// 404 or 405. Such requests are counted as unmatched.
func (rt *Router) Otherwise(p *Problem) {
	rt.handle("/", rt.missed, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Fail(w, r, p) }))
}

// HandleFunc registers a function.
func (rt *Router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	rt.Handle(pattern, http.HandlerFunc(handler))
}

// ServeHTTP serves one request.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rec := &recorder{ResponseWriter: w, request: r}
	if id := RequestID(r); id != "" {
		w.Header()[requestIDKey] = []string{id}
	}
	defer func() {
		if cause := recover(); cause != nil {
			rt.panicked(rec, r, cause)
		}
		rt.done(rec, r, time.Since(start))
	}()
	rt.mux.ServeHTTP(rec, r)
}

// panicked logs a panic, and answers unless an answer has begun.
func (rt *Router) panicked(rec *recorder, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
		panic(cause)
	}
	rt.log.ErrorContext(r.Context(), "handler panicked", "method", r.Method, "route", r.Pattern,
		"request_id", ensureRequestID(rec, r), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if rec.status == 0 {
		Fail(rec, r, Internal())
	}
}

func (rt *Router) done(rec *recorder, r *http.Request, took time.Duration) {
	status := rec.status
	if status == 0 {
		status = http.StatusOK
	}
	route := rec.route
	if route == nil {
		route = rt.missed
	}
	route.Observe(status, took)
	if rt.log.Enabled(r.Context(), slog.LevelDebug) {
		rt.log.DebugContext(r.Context(), "request served", "method", r.Method, "path", r.URL.Path,
			"route", r.Pattern, "status", status, "seconds", took.Seconds(), "request_id", RequestID(r))
	}
}

// recorder remembers the status of a response. Until a route has been chosen,
// what is written comes from http.ServeMux itself, and becomes a problem.
type recorder struct {
	http.ResponseWriter
	request *http.Request
	route   *telemetry.HTTPRoute
	status  int
	muted   bool // the mux's own text is dropped
}

// Unwrap lets http.ResponseController reach the connection.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

func (rec *recorder) WriteHeader(status int) {
	if rec.status == 0 && rec.route == nil && status >= http.StatusBadRequest {
		rec.muted = true
		rec.status = status
		rec.Header().Del("X-Content-Type-Options")
		Fail(rec.ResponseWriter, rec.request, missProblem(status, rec.Header().Get("Allow")))
		return
	}
	if rec.status == 0 && status >= http.StatusOK { // 1xx is not the answer yet
		rec.status = status
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *recorder) Write(b []byte) (int, error) {
	if rec.muted {
		return len(b), nil
	}
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	return rec.ResponseWriter.Write(b)
}

// missProblem is the problem for a request that reached no handler.
func missProblem(status int, allow string) *Problem {
	switch status {
	case http.StatusNotFound:
		return NotFound(NoSuchPath)
	case http.StatusMethodNotAllowed:
		return NewProblem(status, CodeMethodNotAllowed, "this path takes "+allow)
	default:
		return NewProblem(status, CodeBadRequest, "")
	}
}
