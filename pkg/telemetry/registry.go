package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace begins the name of every metric of ours.
const namespace = "doorbuster"

// NewRegistry returns a registry of its own, not the process-wide default, that
// holds the process and Go runtime metrics.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// MetricsHandler serves /metrics.
func MetricsHandler(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
}

// Buckets of durations in seconds. Calls inside a data center take 100 µs to a
// few ms when all is well; the upper end covers the longest timeouts.
var callBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// Buckets of the sizes of batches, up to the largest batch-max.
var sizeBuckets = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000}

// stage makes the metrics of one stage: doorbuster_<stage>_<name>.
type stage struct {
	factory promauto.Factory
	name    string
}

func newStage(registerer prometheus.Registerer, name string) stage {
	return stage{factory: promauto.With(registerer), name: name}
}

func (s stage) counter(name, help string) prometheus.Counter {
	return s.factory.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: s.name, Name: name, Help: help})
}

func (s stage) gauge(name, help string) prometheus.Gauge {
	return s.factory.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: s.name, Name: name, Help: help})
}

func (s stage) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return s.factory.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: s.name, Name: name, Help: help, Buckets: buckets})
}

func (s stage) histograms(name, help string, buckets []float64, label string, values []string) *prometheus.HistogramVec {
	vec := s.factory.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Subsystem: s.name, Name: name, Help: help, Buckets: buckets}, []string{label})
	for _, value := range values {
		vec.WithLabelValues(value)
	}
	return vec
}

// counters makes one counter per value of a label, each starting at zero.
func (s stage) counters(name, help, label string, values []string) Counters {
	vec := s.factory.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: s.name, Name: name, Help: help}, []string{label})
	counters := Counters{byValue: make(map[string]prometheus.Counter, len(values)+1)}
	for _, value := range values {
		counters.byValue[value] = vec.WithLabelValues(value)
	}
	counters.other = vec.WithLabelValues(otherValue)
	return counters
}

// otherValue is the label value of everything that was not announced.
const otherValue = "other"

// Counters is a counter with one label whose values are all known beforehand, so
// that each is there from the start, at zero, and no caller can add more.
type Counters struct {
	byValue map[string]prometheus.Counter
	other   prometheus.Counter
}

// Of returns the counter of a label value. One that was not announced counts as "other".
func (c Counters) Of(value string) prometheus.Counter {
	if counter, ok := c.byValue[value]; ok {
		return counter
	}
	return c.other
}
