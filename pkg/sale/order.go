package sale

import "time"

// OrderStatus is the state of an order:
//
//	pending -> processing -> pending_payment -> paid -> fulfilled
//	   |                        |   \-> cancelled, expired
//	   v                        v
//	  void                   rejected (by the ledger's last guard, or rolled back: also from paid)
//
// pending, processing and void have no row in the ledger: pending is a grant
// not yet known to be durable, processing a durable one the worker has not
// written yet, void one that was fenced out and never told "won".
type OrderStatus string

// The states of an order.
const (
	OrderPending        OrderStatus = "pending"
	OrderProcessing     OrderStatus = "processing"
	OrderVoid           OrderStatus = "void"
	OrderPendingPayment OrderStatus = "pending_payment"
	OrderPaid           OrderStatus = "paid"
	OrderFulfilled      OrderStatus = "fulfilled"
	OrderCancelled      OrderStatus = "cancelled"
	OrderExpired        OrderStatus = "expired"
	OrderRejected       OrderStatus = "rejected"
)

// Live reports whether an order in this state holds stock.
func (s OrderStatus) Live() bool {
	switch s {
	case OrderPendingPayment, OrderPaid, OrderFulfilled:
		return true
	}
	return false
}

// Ended reports whether nothing more can become of an order in this state than
// that what it holds comes back.
func (s OrderStatus) Ended() bool {
	switch s {
	case OrderFulfilled, OrderCancelled, OrderExpired, OrderRejected, OrderVoid:
		return true
	}
	return false
}

// Why an order ended: the values of Order.Reason.
const (
	ReasonUser             = "user"              // its owner cancelled it
	ReasonAdmin            = "admin"             // an operator cancelled it
	ReasonPaymentTimeout   = "payment_timeout"   // it was not paid in time
	ReasonFulfilmentFailed = "fulfilment_failed" // the shop could not fulfil it
	ReasonOversold         = "oversold"          // the ledger had no stock left for it
)

// Order is what a grant becomes.
type Order struct {
	ID        string      `json:"order_id"`
	SaleID    string      `json:"sale_id"`
	User      string      `json:"user"`
	Status    OrderStatus `json:"status"`
	Lines     []OrderLine `json:"items"`
	CreatedAt time.Time   `json:"created_at"` // when it was granted
	UpdatedAt time.Time   `json:"updated_at"`
	ExpiresAt time.Time   `json:"expires_at"`
	// Reason is a code that says why the order ended, empty while it lives.
	Reason string `json:"reason,omitempty"`
	// LatePaymentAt is when the order was paid for after it had ended, for the
	// first time; zero when it was not.
	LatePaymentAt time.Time `json:"late_payment_at,omitzero"`
	Key           string    `json:"-"`
	IP            string    `json:"-"`
	// Generation is the one of the sale's state in Redis that granted it.
	Generation int64 `json:"-"`
}

// OrderLine is one SKU of an order and how much of it came back.
type OrderLine struct {
	Line
	Returned int64 `json:"returned"`
}
