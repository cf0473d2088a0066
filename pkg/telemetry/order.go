package telemetry

import "github.com/prometheus/client_golang/prometheus"

// OrderMetrics are what the order worker counts: doorbuster_order_*.
type OrderMetrics struct {
	Grants      prometheus.Counter   // grants whose order is committed, replays included
	Rows        Counters             // rows written, by table
	TxSeconds   prometheus.Histogram // one transaction, retries included
	TxGrants    prometheus.Histogram // grants in one transaction
	Retries     Counters             // transactions and deliveries tried again, by reason
	DeadLetters prometheus.Counter   // grants put aside for a person to decide
	Rejected    prometheus.Counter   // orders the ledger's last guard refused; alarm on any
	Rewinds     prometheus.Counter   // times the stream was read again because the ledger lacked settled messages
	Waiting     prometheus.Gauge     // requests that wait for orders or watch them
	StreamLag   prometheus.Gauge     // messages of the stream not written yet
}

// NewOrderMetrics registers the metrics; tables and reasons are all values of the labels.
func NewOrderMetrics(registerer prometheus.Registerer, tables, reasons []string) *OrderMetrics {
	s := newStage(registerer, "order")
	return &OrderMetrics{
		Grants:      s.counter("grants_total", "Grants whose order is committed, replays included."),
		Rows:        s.counters("rows_total", "Rows written by table.", "table", tables),
		TxSeconds:   s.histogram("tx_seconds", "Time of one transaction, retries included.", callBuckets),
		TxGrants:    s.histogram("tx_grants", "Grants in one transaction.", sizeBuckets),
		Retries:     s.counters("retries_total", "Transactions and deliveries tried again by reason.", "reason", reasons),
		DeadLetters: s.counter("dead_letters_total", "Grants put aside as dead letters."),
		Rejected:    s.counter("rejected_total", "Orders refused by the ledger's last guard."),
		Rewinds:     s.counter("rewinds_total", "Times the stream was read again because the ledger lacked settled messages."),
		Waiting:     s.gauge("waiting", "Requests that wait for an order (?wait=) or watch one (server-sent events)."),
		StreamLag:   s.gauge("stream_lag", "Stream messages that are not written yet."),
	}
}
