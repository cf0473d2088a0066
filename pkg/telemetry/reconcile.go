package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ReconcileMetrics are what the reconciler counts: doorbuster_reconcile_*.
type ReconcileMetrics struct {
	runs           *prometheus.CounterVec
	Seconds        prometheus.Histogram     // one reconciliation of one sale
	StepSeconds    *prometheus.HistogramVec // its steps, label step
	Drift          Counters                 // differences found between Redis and the ledger, by kind
	RestoredGrants prometheus.Counter       // grants put back into Redis
	Relayed        prometheus.Counter       // outbox batches and returns that a crash had left unapplied
}

// Reconciliations take from milliseconds to minutes.
var runBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// NewReconcileMetrics registers the metrics; results, reasons, steps and kinds are all values of the labels.
func NewReconcileMetrics(registerer prometheus.Registerer, results, reasons, steps, kinds []string) *ReconcileMetrics {
	s := newStage(registerer, "reconcile")
	m := &ReconcileMetrics{
		runs: s.factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: s.name, Name: "runs_total",
			Help: "Reconciliations of a sale by result and by what asked for them.",
		}, []string{"result", "reason"}),
		Seconds:        s.histogram("seconds", "Time of one reconciliation of one sale.", runBuckets),
		StepSeconds:    s.histograms("step_seconds", "Time of each step of a reconciliation.", runBuckets, "step", steps),
		Drift:          s.counters("drift_total", "Differences found between Redis and the ledger by kind.", "kind", kinds),
		RestoredGrants: s.counter("restored_grants_total", "Grants put back into Redis."),
		Relayed:        s.counter("relayed_total", "Outbox batches and returns applied after a crash."),
	}
	for _, result := range results {
		for _, reason := range reasons {
			m.Runs(result, reason)
		}
	}
	return m
}

// Runs counts the reconciliations with a result, by what asked for them.
func (m *ReconcileMetrics) Runs(result, reason string) prometheus.Counter {
	return m.runs.WithLabelValues(result, reason)
}
