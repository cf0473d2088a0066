package sale

import "time"

// OrderStatus is the state of an order:
//
//	pending -> processing -> pending_payment -> paid -> fulfilled
//	   |                        |   \-> cancelled, expired
//	   v                        v
//	  void                   rejected (the ledger's last guard refused it)
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
	Key    string `json:"-"`
	IP     string `json:"-"`
	// Generation is the one of the sale's state in Redis that granted it.
	Generation int64 `json:"-"`
}

// OrderLine is one SKU of an order and how much of it came back.
type OrderLine struct {
	Line
	Returned int64 `json:"returned"`
}
