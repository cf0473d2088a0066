package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of the dependency checks.
const (
	checkTimeout = 2 * time.Second // one check
	// optionalTimeout is for the check of an optional dependency. One that hangs must not keep a probe
	// waiting for so long that the service is taken for unready: many give up after a second.
	optionalTimeout = 500 * time.Millisecond
	checkMaxAge     = time.Second // life of a result; probes in between do not reach the dependency
	// unreadyMaxAge is the life of a result by which the service is not ready: it is short, so that
	// a service is ready soon after what it waits for is there.
	unreadyMaxAge = 100 * time.Millisecond
)

// Check asks one dependency whether it can be used. It must end when its context
// does. Its error is shown to whoever asks for /readyz: it must hold no secret.
type Check func(context.Context) error

// Health knows whether the service should get requests. It is ready while every
// required dependency's check succeeds and it is not draining.
type Health struct {
	draining atomic.Bool

	mu     sync.Mutex
	checks []namedCheck

	running chan struct{} // full while the checks run, so that they run once for many probes
	last    []CheckResult // these two belong to whoever filled running
	lastAt  time.Time
}

type namedCheck struct {
	name     string
	check    Check
	required bool
}

// CheckResult is what was found out about one dependency.
type CheckResult struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Required is there, and false, for a dependency that does not decide readiness.
	Required *bool  `json:"required,omitempty"`
	Error    string `json:"error,omitempty"`
}

func (r CheckResult) prevents() bool { return !r.OK && r.Required == nil }

// NewHealth returns a Health without dependencies, which is ready.
func NewHealth() *Health { return &Health{running: make(chan struct{}, 1)} }

// Add adds a dependency without which the service should get no requests.
func (h *Health) Add(name string, check Check) { h.add(namedCheck{name, check, true}) }

// AddOptional adds a dependency that is looked at and told of, and does not decide
// readiness: without it the service still does most of its work.
func (h *Health) AddOptional(name string, check Check) { h.add(namedCheck{name, check, false}) }

func (h *Health) add(c namedCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, c)
}

// Drain makes the service not ready for good: it is about to stop.
func (h *Health) Drain() { h.draining.Store(true) }

// Ready runs the checks, all at once, unless their last results are fresh enough.
// The results are in the order of Add.
func (h *Health) Ready(ctx context.Context) (ready bool, results []CheckResult) {
	results = h.results(ctx)
	return !h.draining.Load() && !slices.ContainsFunc(results, CheckResult.prevents), results
}

func (h *Health) results(ctx context.Context) []CheckResult {
	h.running <- struct{}{}
	defer func() { <-h.running }()
	life := checkMaxAge
	if slices.ContainsFunc(h.last, CheckResult.prevents) {
		life = unreadyMaxAge
	}
	if !h.lastAt.IsZero() && time.Since(h.lastAt) < life {
		return h.last
	}
	h.mu.Lock()
	checks := slices.Clone(h.checks)
	h.mu.Unlock()
	// A probe that goes away must not leave a failure behind for the others.
	ctx = context.WithoutCancel(ctx)
	results := make([]CheckResult, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { results[i] = c.run(ctx) })
	}
	wg.Wait()
	h.last, h.lastAt = results, time.Now()
	return results
}

func (c namedCheck) run(ctx context.Context) CheckResult {
	result := CheckResult{Name: c.name, OK: true}
	timeout := checkTimeout
	if !c.required {
		result.Required, timeout = &c.required, optionalTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.check(ctx); err != nil {
		result.OK, result.Error = false, err.Error()
	}
	return result
}

// LiveHandler serves /healthz: 200 as long as the process can answer at all. It
// asks no dependency, because restarting this process does not repair another.
func (h *Health) LiveHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, map[string]any{"status": "ok"})
	})
}

// ReadyHandler serves /readyz: 200 or 503, and what was found out about each dependency.
func (h *Health) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ready, results := h.Ready(r.Context())
		body := map[string]any{"status": "ready", "dependencies": results}
		if ready {
			writeHealth(w, http.StatusOK, body)
			return
		}
		body["status"] = "not_ready"
		if h.draining.Load() {
			body["status"] = "draining"
		}
		writeHealth(w, http.StatusServiceUnavailable, body)
	})
}

func writeHealth(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone; there is nobody to tell
}
