package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// ActorUser is the actor of what the owner of an order does to it; the log names
// the user anyway.
const ActorUser = "user"

// Cancel ends an order that waits for its payment and decides that its stock
// comes back: what the grab took and nobody brought back yet. Anybody but the owner
// may cancel a paid order, too; the shop refunds it. The giveback is to be applied in
// Redis. The same actor may cancel again: nothing changes, the answer is the same. It
// answers ErrNotFound, and *OrderStatusError when the order's status does not allow it
// or nothing is left of the order.
func (l *Ledger) Cancel(ctx context.Context, orderID, actor, reason string) (sale.Order, sale.Giveback, error) {
	return l.comeBack(ctx, orderID, cancellation(orderID, actor, reason))
}

func cancellation(orderID, actor, reason string) comeback {
	code, from := sale.ReasonAdmin, []sale.OrderStatus{sale.OrderPendingPayment, sale.OrderPaid}
	if actor == ActorUser {
		code, from = sale.ReasonUser, from[:1]
	}
	return comeback{
		kind: sale.FlowCancel, ref: orderID, actor: actor, reason: reason, lines: cancellable, event: sale.EventCancelled,
		from: from, to: sale.OrderCancelled, code: code, refused: wrongStatus,
		repeats: func(o *sale.Order, flow *flowRow, _ *sale.Giveback) error {
			if flow.OrderID != o.ID || flow.Actor != fit(actor, maxActor) {
				return wrongStatus(o)
			}
			return nil
		},
	}
}

// cancellable is what an order holds, if it holds anything.
func cancellable(o *sale.Order) ([]sale.Line, error) {
	lines, err := heldSome(o)
	if errors.Is(err, errNothingHeld) {
		err = wrongStatus(o)
	}
	return lines, err
}

// comeBack is giveBack in a transaction of its own.
func (l *Ledger) comeBack(ctx context.Context, orderID string, c comeback) (order sale.Order, giveback sale.Giveback, err error) {
	err = l.change(ctx, fmt.Sprintf("%s order %s", c.kind, orderID), func(tx *gorm.DB) error {
		var err error
		order, giveback, err = l.giveBack(tx, orderID, c)
		return err
	})
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	return order, giveback, nil
}
