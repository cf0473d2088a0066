package sale

import "time"

// FlowKind is why a stock changed.
type FlowKind string

// The kinds of a flow. Grabs and downward adjustments take, the rest give.
const (
	FlowGrab   FlowKind = "grab"
	FlowCancel FlowKind = "cancel"
	FlowExpire FlowKind = "expire"
	FlowReturn FlowKind = "return"
	FlowReject FlowKind = "reject" // a fulfilment that was given up
	FlowAdjust FlowKind = "adjust"
	// FlowStock is an operator's change from limited to unlimited stock, or back; to
	// the log unlimited stock is none.
	FlowStock FlowKind = "stock"
)

// FlowKinds lists every kind.
var FlowKinds = []FlowKind{FlowGrab, FlowCancel, FlowExpire, FlowReturn, FlowReject, FlowAdjust, FlowStock}

// Flow is one line of the append-only log of stock and counters. Per SKU and per
// counter the lines chain: each Before equals the After of the line before it.
type Flow struct {
	Seq    int64  `json:"seq"` // grows with every line of the ledger; the page cursor
	SaleID string `json:"sale_id"`
	SKU    string `json:"sku,omitempty"` // empty for a line of a counter
	// Counter is LIMIT_NAME/PERIOD/SUBJECT; empty for a line of an SKU.
	Counter string   `json:"counter,omitempty"`
	Kind    FlowKind `json:"kind"`
	// Ref names the cause, unique per (SKU, Kind): the order id for a grab,
	// cancel, expire or reject; the return id; the adjustment's id.
	Ref     string `json:"ref"`
	OrderID string `json:"order_id,omitempty"`
	User    string `json:"user,omitempty"`
	// Before, Step and After are of the remaining units. For unlimited stock
	// they count from zero downwards. Those of a counter are of the units used.
	Before int64     `json:"before"`
	Step   int64     `json:"step"`
	After  int64     `json:"after"`
	Reason string    `json:"reason,omitempty"`
	Actor  string    `json:"actor,omitempty"` // who decided it; empty for a grab
	At     time.Time `json:"at"`
}

// Giveback is stock that came back: one decision of the ledger, to be applied
// in Redis exactly once.
type Giveback struct {
	// ID is unique in the sale: kind and reference, e.g. "cancel:ORDER".
	ID      string
	SaleID  string
	OrderID string // empty for an adjustment
	// User is empty for an adjustment, and where the units stay counted against
	// the user; see Rules.NoRegrab.
	User   string
	Lines  []Line
	Counts []CountStep // the counters it takes units off
}

// CountStep is units taken off one counter.
type CountStep struct {
	Limit   string `json:"limit"` // see Limit.Name
	Period  string `json:"period"`
	Subject string `json:"subject"`
	Units   int64  `json:"units"`
}

// GivebackID is the one way to name a giveback.
func GivebackID(kind FlowKind, ref string) string { return string(kind) + ":" + ref }
