package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Return is units of a paid order that came back to the shop.
type Return struct {
	OrderID string
	// ID names the return in its order: 1 to MaxReturnIDLen printable ASCII
	// characters without spaces.
	ID            string
	Lines         []sale.Line // SKU and Quantity; the price is the order's
	Actor, Reason string
}

// MaxReturnIDLen is the most bytes of a return's id.
const MaxReturnIDLen = 64

// ErrReturnReused says that a return's id was used for another return of the order.
var ErrReturnReused = errors.New("the id belongs to another return of this order")

// ReturnError says that more of an item would come back than is left of it in the order.
type ReturnError struct {
	OrderID, SKU string
	Quantity     int64 // that was to come back
	Left         int64 // that may
}

func (e *ReturnError) Error() string {
	return fmt.Sprintf("order %s: %d units of SKU %s can't come back, %d are left", e.OrderID, e.Quantity, e.SKU, e.Left)
}

// Return decides that units of an order come back, once per ID; the order keeps its
// status, however much of it came back. The giveback is to be applied in Redis. The same ID
// with the same lines changes nothing and gets the same giveback, and the order as it
// is by then. It answers a *sale.FieldError, ErrNotFound, ErrReturnReused,
// *ReturnError, and *OrderStatusError for an order that is not paid.
func (l *Ledger) Return(ctx context.Context, r Return) (sale.Order, sale.Giveback, error) {
	if !validReturnID(r.ID) {
		return sale.Order{}, sale.Giveback{}, &sale.FieldError{
			Field: "return_id", Message: fmt.Sprintf("must be 1 to %d printable ASCII characters without spaces", MaxReturnIDLen),
		}
	}
	lines, err := r.lines()
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	_, code, _ := strings.Cut(r.OrderID, ".")
	return l.comeBack(ctx, r.OrderID, comeback{
		kind: sale.FlowReturn, ref: code + ":" + r.ID, actor: r.Actor, reason: r.Reason, event: sale.EventReturned, told: r.ID,
		from: []sale.OrderStatus{sale.OrderPaid, sale.OrderFulfilled}, refused: wrongStatus,
		lines: func(o *sale.Order) ([]sale.Line, error) { return returnable(o, lines) },
		repeats: func(_ *sale.Order, _ *flowRow, back *sale.Giveback) error {
			if !sameLines(back.Lines, lines) {
				return ErrReturnReused
			}
			return nil
		},
	})
}

// validReturnID takes no spaces: at the end of a column they would not count.
func validReturnID(id string) bool {
	return id != "" && printable(id, MaxReturnIDLen) && !strings.Contains(id, " ")
}

// lines returns the lines in order of their SKUs.
func (r *Return) lines() ([]sale.Line, error) {
	if len(r.Lines) == 0 || len(r.Lines) > sale.MaxLines {
		return nil, &sale.FieldError{Field: "items", Message: fmt.Sprintf("must hold 1 to %d lines", sale.MaxLines)}
	}
	for i, l := range r.Lines {
		if l.Quantity < 1 || l.Quantity > sale.MaxQuantity {
			return nil, &sale.FieldError{
				Field: fmt.Sprintf("items[%d].quantity", i), Message: fmt.Sprintf("must be 1 to %d", sale.MaxQuantity),
			}
		}
		if slices.ContainsFunc(r.Lines[:i], func(earlier sale.Line) bool { return earlier.SKU == l.SKU }) {
			return nil, &sale.FieldError{Field: fmt.Sprintf("items[%d].sku", i), Message: "stands twice in this return"}
		}
	}
	return slices.SortedFunc(slices.Values(r.Lines), func(a, b sale.Line) int { return strings.Compare(a.SKU, b.SKU) }), nil
}

// returnable returns the lines with the order's prices, if that much can come back.
func returnable(o *sale.Order, lines []sale.Line) ([]sale.Line, error) {
	back := slices.Clone(lines)
	for i := range back {
		line := &back[i]
		at := slices.IndexFunc(o.Lines, func(l sale.OrderLine) bool { return l.SKU == line.SKU })
		left := int64(0)
		if at >= 0 {
			left, line.PriceCents = o.Lines[at].Quantity-o.Lines[at].Returned, o.Lines[at].PriceCents
		}
		if line.Quantity > left {
			return nil, &ReturnError{OrderID: o.ID, SKU: line.SKU, Quantity: line.Quantity, Left: left}
		}
	}
	return back, nil
}

// sameLines compares what comes back; both are in order of their SKUs.
func sameLines(a, b []sale.Line) bool {
	return slices.EqualFunc(a, b, func(a, b sale.Line) bool { return a.SKU == b.SKU && a.Quantity == b.Quantity })
}
