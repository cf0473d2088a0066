package telemetry

import "github.com/prometheus/client_golang/prometheus"

// GrabMetrics are what the grab service counts: doorbuster_grab_*.
type GrabMetrics struct {
	Outcomes       Counters             // answers to clients, by outcome
	BatchSize      prometheus.Histogram // grabs in one call of the selling script
	ScriptSeconds  prometheus.Histogram // one call of the selling script
	PublishSeconds prometheus.Histogram // from publishing a batch to its acknowledgement
	QueueDepth     prometheus.Gauge     // grabs that wait for the script, all sales together
	InFlight       prometheus.Gauge     // grab requests in the process
	UnackedBatches prometheus.Gauge     // published and not acknowledged, all sales together
	Pending        prometheus.Counter   // grants whose batch was not acknowledged in time
	Replays        prometheus.Counter   // retries answered with the grant they already had
	NotLoaded      prometheus.Counter   // script calls that found the sale not loaded
	EraChanges     prometheus.Counter   // times a Redis server turned out to be in another era
	OrphanBatches  prometheus.Counter   // outboxes' batches published for a process that is gone
	RateLimited    Counters             // grabs slowed down, by policy
	FlowRevision   prometheus.Gauge     // revision of the flow control in force
	GatewayBatch   prometheus.Histogram // grabs in one request of a gateway
	Deductions     Counters             // answers to deductions from quotas, by result
	Selling        prometheus.Gauge     // sales and quotas that hold a queue in the process
}

// The results of a deduction from a quota.
const (
	DeductionAllowed   = "allowed"
	DeductionRefused   = "refused"
	DeductionUnknown   = "unknown_quota"
	DeductionUndecided = "undecided" // not loaded in time, or something can't be reached
)

var deductionResults = []string{DeductionAllowed, DeductionRefused, DeductionUnknown, DeductionUndecided}

// policies are the rates that may slow a grab down; see pkg/grab.
var policies = []string{"user", "ip", "sale"}

// NewGrabMetrics registers the metrics; outcomes are all outcomes a grab can have.
func NewGrabMetrics(registerer prometheus.Registerer, outcomes []string) *GrabMetrics {
	s := newStage(registerer, "grab")
	return &GrabMetrics{
		Outcomes:       s.counters("outcomes_total", "Answers to grabs by outcome.", "outcome", outcomes),
		BatchSize:      s.histogram("batch_size", "Grabs in one call of the selling script.", sizeBuckets),
		ScriptSeconds:  s.histogram("script_seconds", "Time of one call of the selling script.", callBuckets),
		PublishSeconds: s.histogram("publish_seconds", "Time from publishing a batch to its acknowledgement.", callBuckets),
		QueueDepth:     s.gauge("queue_depth", "Grabs that wait for the selling script."),
		InFlight:       s.gauge("in_flight", "Grab requests in the process."),
		UnackedBatches: s.gauge("unacked_batches", "Batches published and not acknowledged yet."),
		Pending:        s.counter("pending_total", "Grants whose batch was not acknowledged in time."),
		Replays:        s.counter("replays_total", "Retries answered with the grant they already had."),
		NotLoaded:      s.counter("not_loaded_total", "Script calls that found the sale not loaded."),
		EraChanges:     s.counter("era_changes_total", "Times a Redis server turned out to be in another era."),
		OrphanBatches:  s.counter("orphan_batches_total", "Batches published for a grab process that is gone."),
		RateLimited:    s.counters("rate_limited_total", "Grabs slowed down by the policy that did it.", "policy", policies),
		FlowRevision:   s.gauge("flow_control_revision", "Revision of the flow control in force; 0 is the process's own configuration."),
		GatewayBatch:   s.histogram("gateway_batch_size", "Grabs in one request of a gateway.", sizeBuckets),
		Deductions:     s.counters("deductions_total", "Answers to deductions from quotas by result.", "result", deductionResults),
		Selling:        s.gauge("selling", "Sales and quotas that hold a queue in the process."),
	}
}
