package sale

import (
	"strings"
	"time"
)

// GrantKind tells what took the stock.
type GrantKind byte

// The kinds of a grant.
const (
	// GrantGrab is a user's grab; it becomes an order.
	GrantGrab GrantKind = 'g'
	// GrantAdjust is an operator's stock reduction. It travels like a grab, so
	// that the same fence decides whether it happened; it becomes a flow only.
	GrantAdjust GrantKind = 'a'
)

// Grant is a grab that won: the atomic step in Redis succeeded.
type Grant struct {
	Kind    GrantKind
	OrderID string
	User    string // empty for an adjustment
	Key     string // the client's idempotency key, empty when it sent none; for an adjustment, who and why
	IP      string // the client's address, empty when unknown
	At      time.Time
	// ExpiresAt is when an unpaid order ends; zero for an adjustment.
	ExpiresAt time.Time
	Lines     []Line
}

// Line is one SKU of a grab or an order.
type Line struct {
	SKU        string `json:"sku"`
	Quantity   int64  `json:"quantity"` // units, 1 to MaxQuantity
	PriceCents int64  `json:"price_cents"`
}

// Units is the sum of the quantities of all lines.
func (g *Grant) Units() int64 {
	var n int64
	for _, l := range g.Lines {
		n += l.Quantity
	}
	return n
}

// AdjustmentNote is the Key of an adjustment's grant: who takes the stock, and why.
func AdjustmentNote(actor, reason string) string {
	return strings.ReplaceAll(actor, "\n", " ") + "\n" + reason
}

// AdjustmentNote returns who and why of an adjustment's grant. A Key without an
// actor is all reason.
func (g *Grant) AdjustmentNote() (actor, reason string) {
	actor, reason, found := strings.Cut(g.Key, "\n")
	if !found {
		return "", g.Key
	}
	return actor, reason
}
