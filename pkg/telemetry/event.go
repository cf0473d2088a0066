package telemetry

import "github.com/prometheus/client_golang/prometheus"

// EventMetrics are what the publisher of events counts: doorbuster_event_*.
type EventMetrics struct {
	Published  Counters           // events on the stream, repeats included, by kind
	Failures   prometheus.Counter // rounds that could not publish everything
	Deliveries prometheus.Counter // calls of the shop's system that became due
	Lag        prometheus.Gauge   // age of the oldest event that is not on the stream, in seconds
}

// NewEventMetrics registers the metrics; kinds are all values of the label.
func NewEventMetrics(registerer prometheus.Registerer, kinds []string) *EventMetrics {
	s := newStage(registerer, "event")
	return &EventMetrics{
		Published:  s.counters("published_total", "Events on the stream by kind, repeats included.", "kind", kinds),
		Failures:   s.counter("publish_failures_total", "Rounds in which events could not be published."),
		Deliveries: s.counter("deliveries_total", "Webhooks that became due."),
		Lag:        s.gauge("lag_seconds", "Age of the oldest event that is not on the stream yet."),
	}
}
