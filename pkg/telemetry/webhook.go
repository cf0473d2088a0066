package telemetry

import "github.com/prometheus/client_golang/prometheus"

// WebhookMetrics are what the sender of webhooks counts: doorbuster_webhook_*.
type WebhookMetrics struct {
	Calls       Counters             // calls by what came of them
	CallSeconds prometheus.Histogram // one call
	InFlight    prometheus.Gauge     // calls under way
	SlowHosts   prometheus.Gauge     // receivers that count as slow
	Waiting     prometheus.Gauge     // deliveries that wait for their next call, of all processes
	Parked      prometheus.Gauge     // deliveries that wait for an operator, of all processes
	Ended       Counters             // deliveries that will not be called again, by their state
	Failures    prometheus.Counter   // looks into the ledger, or results for it, that failed
}

// Calls of receivers take from milliseconds to the longest --webhook-timeout.
var webhookBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60}

// NewWebhookMetrics registers the metrics; results and ends are all values of the labels.
func NewWebhookMetrics(registerer prometheus.Registerer, results, ends []string) *WebhookMetrics {
	s := newStage(registerer, "webhook")
	return &WebhookMetrics{
		Calls:       s.counters("calls_total", "Webhook calls by result.", "result", results),
		CallSeconds: s.histogram("call_seconds", "Time of one webhook call.", webhookBuckets),
		InFlight:    s.gauge("in_flight", "Webhook calls under way."),
		SlowHosts:   s.gauge("slow_hosts", "Receivers that count as slow."),
		Waiting:     s.gauge("waiting_deliveries", "Deliveries that wait for their next call; every process tells the same number."),
		Parked:      s.gauge("parked_deliveries", "Deliveries that wait for an operator; every process tells the same number."),
		Ended:       s.counters("ended_total", "Deliveries that came to an end, by state.", "state", ends),
		Failures:    s.counter("ledger_failures_total", "Failed looks into the ledger for due webhooks, and results it did not take."),
	}
}
