package sale

import "time"

// EventKind is what happened to an order.
type EventKind string

// The kinds of an event; the subject on the event stream is "orders." and the kind.
const (
	EventCreated     EventKind = "created"
	EventPaid        EventKind = "paid"
	EventFulfilled   EventKind = "fulfilled"
	EventCancelled   EventKind = "cancelled"
	EventExpired     EventKind = "expired"
	EventRejected    EventKind = "rejected"
	EventReturned    EventKind = "returned"
	EventLatePayment EventKind = "late_payment" // paid after it ended: the shop has to refund
)

// EventKinds lists every kind.
var EventKinds = []EventKind{
	EventCreated, EventPaid, EventFulfilled, EventCancelled, EventExpired, EventRejected, EventReturned, EventLatePayment,
}

// Event tells the shop what happened to an order: the message on the event
// stream and the body of a webhook. Events come at least once; ID tells repeats apart.
type Event struct {
	ID   string    `json:"id"`
	Type string    `json:"type"` // "order." and the kind
	At   time.Time `json:"timestamp"`
	Data Order     `json:"data"` // as it is after the event
}

// EventKindNames lists every kind as text.
func EventKindNames() []string {
	names := make([]string, len(EventKinds))
	for i, k := range EventKinds {
		names[i] = string(k)
	}
	return names
}
