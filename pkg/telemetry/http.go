package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HTTPMetrics are what every HTTP service counts: doorbuster_http_*.
type HTTPMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewHTTPMetrics registers the metrics.
func NewHTTPMetrics(registerer prometheus.Registerer) *HTTPMetrics {
	s := newStage(registerer, "http")
	return &HTTPMetrics{
		requests: s.factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: s.name, Name: "requests_total",
			Help: "HTTP requests by route pattern, method and status.",
		}, []string{"route", "method", "code"}),
		seconds: s.histograms("request_seconds", "Time of one HTTP request by route pattern.", requestBuckets, "route", nil),
	}
}

// Requests may be long polls, so their buckets reach further than those of calls.
var requestBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// knownCodes are the statuses that the services answer with. Their counters are
// there from the start; others appear when they first happen.
var knownCodes = []int{
	http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent,
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
	http.StatusMethodNotAllowed, http.StatusConflict, http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// HTTPRoute counts the requests of one route. Its counters are looked up once.
type HTTPRoute struct {
	metrics       *HTTPMetrics
	route, method string
	seconds       prometheus.Observer
	codes         map[int]prometheus.Counter
}

// Route returns the counters of a route. route is its pattern, never a path that
// a client sent; method is its method, or "other".
func (m *HTTPMetrics) Route(route, method string) *HTTPRoute {
	r := &HTTPRoute{
		metrics: m, route: route, method: method,
		seconds: m.seconds.WithLabelValues(route),
		codes:   make(map[int]prometheus.Counter, len(knownCodes)),
	}
	for _, code := range knownCodes {
		r.codes[code] = m.requests.WithLabelValues(route, method, strconv.Itoa(code))
	}
	return r
}

// Observe counts one request that was answered with a status.
func (r *HTTPRoute) Observe(status int, took time.Duration) {
	r.seconds.Observe(took.Seconds())
	if counter, ok := r.codes[status]; ok {
		counter.Inc()
		return
	}
	r.metrics.requests.WithLabelValues(r.route, r.method, strconv.Itoa(status)).Inc()
}
