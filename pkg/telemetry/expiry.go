package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ExpiryMetrics are what ends unpaid orders counts: doorbuster_expiry_*.
type ExpiryMetrics struct {
	Orders   prometheus.Counter   // orders that expired
	Seconds  prometheus.Histogram // one transaction of them, retries included
	Lag      prometheus.Gauge     // how long the next order has been due, in seconds
	Stuck    prometheus.Gauge     // orders that can't expire, because of what is in the ledger
	Failures Counters             // by reason
}

// NewExpiryMetrics registers the metrics; reasons are all values of the label.
func NewExpiryMetrics(registerer prometheus.Registerer, reasons []string) *ExpiryMetrics {
	s := newStage(registerer, "expiry")
	return &ExpiryMetrics{
		Orders:   s.counter("orders_total", "Orders that expired because they were not paid in time."),
		Seconds:  s.histogram("tx_seconds", "Time of one transaction that expires orders, retries included.", callBuckets),
		Lag:      s.gauge("lag_seconds", "How long the next order to expire has been due, 0 when none is."),
		Stuck:    s.gauge("stuck_orders", "Orders that are due and can't expire, because of what is in the ledger."),
		Failures: s.counters("failures_total", "Batches that were not expired or not given back at once by reason.", "reason", reasons),
	}
}
