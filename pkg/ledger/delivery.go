package ledger

// DeliveryStatus is what became of a delivery.
type DeliveryStatus string

// The states of a delivery.
const (
	DeliveryWaiting   DeliveryStatus = "waiting"   // for its next attempt
	DeliveryDelivered DeliveryStatus = "delivered" // the receiver took it
	DeliveryFailed    DeliveryStatus = "failed"    // given up; the order was rolled back, unless it was fulfilled before
	DeliveryParked    DeliveryStatus = "parked"    // given up; an operator decides
	DeliveryDropped   DeliveryStatus = "dropped"   // its order ended before it was delivered
)
