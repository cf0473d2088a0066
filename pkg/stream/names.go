package stream

import "strings"

// The names of everything this package keeps in NATS. Subjects end in the sale's
// id, which sale.ValidID keeps to one subject token.
const (
	// GrantsStream holds the batches of grants and the fences.
	GrantsStream = "GRANTS"
	// OrdersConsumer is the durable pull consumer of the order workers.
	OrdersConsumer = "orders"
	// DeadStream holds the dead letters.
	DeadStream = "DEAD"
	// EventsStream holds what happened to orders, for the shop.
	EventsStream = "ORDERS"
	// SalesBucket holds the sale definitions.
	SalesBucket = "SALES"
	// LeasesBucket holds the leases.
	LeasesBucket = "LEASES"
	// ControlBucket holds what all grab processes obey, see FlowControl.
	ControlBucket = "CONTROL"

	grantsPrefix    = "grants."
	fencePrefix     = "fence."
	deadPrefix      = "dead."
	eventsPrefix    = "orders."
	restockedPrefix = "restocked."
	reconcilePrefix = "reconcile."
	anySale         = "*"
	anyKind         = "*"

	// reconcilersQueue is the queue group that shares the reconcile requests.
	reconcilersQueue = "reconcilers"
)

func grantsSubject(saleID string) string    { return grantsPrefix + saleID }
func fenceSubject(saleID string) string     { return fencePrefix + saleID }
func deadSubject(saleID string) string      { return deadPrefix + saleID }
func restockedSubject(saleID string) string { return restockedPrefix + saleID }
func reconcileSubject(saleID string) string { return reconcilePrefix + saleID }

// bucketStream and bucketKey are how JetStream itself keeps a key-value bucket.
func bucketStream(bucket string) string   { return "KV_" + bucket }
func bucketKey(bucket, key string) string { return "$KV." + bucket + "." + key }

// saleOf returns the sale a subject belongs to, and whether it is a fence.
func saleOf(subject string) (saleID string, isFence bool) {
	if id, ok := strings.CutPrefix(subject, fencePrefix); ok {
		return id, true
	}
	_, id, _ := strings.Cut(subject, ".")
	return id, false
}
