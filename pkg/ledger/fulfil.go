package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ActorFulfilment is the actor of orders that are rolled back because the shop's
// system did not take them.
const ActorFulfilment = "fulfilment"

// fulfillable are the states of an order that a delivery may fulfil or roll back.
func fulfillable(status sale.OrderStatus) bool {
	return status == sale.OrderPendingPayment || status == sale.OrderPaid
}

// Fulfil notes that the receiver took a delivery, and makes its order fulfilled.
// An order that is so already, or that has ended meanwhile, stays as it is.
func (l *Ledger) Fulfil(ctx context.Context, d Delivery) error {
	return l.change(ctx, "fulfil order "+d.OrderID, func(tx *gorm.DB) error {
		row, err := take[orderRow](tx.Where("id = ?", d.OrderID).Clauses(clause.Locking{Strength: "UPDATE"}))
		if err != nil {
			return err
		}
		if fulfillable(row.Status) {
			if err := l.fulfil(tx, &row); err != nil {
				return err
			}
		}
		// Taken is taken, whoever has claimed it since.
		return tx.Model(&deliveryRow{}).Where("order_id = ? AND status <> ?", d.OrderID, DeliveryDelivered).
			UpdateColumns(map[string]any{"status": DeliveryDelivered, "last_error": "", "updated_at": now()}).Error
	})
}

// fulfil moves a locked order on.
func (l *Ledger) fulfil(tx *gorm.DB, row *orderRow) error {
	order, err := row.order()
	if err != nil {
		return err
	}
	p := newPosting(nil)
	row.Status, row.UpdatedAt = sale.OrderFulfilled, p.at
	order.Status, order.UpdatedAt = row.Status, row.UpdatedAt
	if err := p.tell(sale.EventFulfilled, &order, ""); err != nil {
		return err
	}
	if err := l.writePosting(tx, p); err != nil {
		return err
	}
	return l.updateOrders(tx, []orderRow{*row})
}

// Postpone notes that an attempt failed, and when the next one is due by the
// database's clock. It changes
// nothing when the claim is over: another process has claimed the delivery, or an
// operator has sent it again.
func (l *Ledger) Postpone(ctx context.Context, d Delivery, next time.Time, why string) error {
	return l.change(ctx, "postpone the delivery of order "+d.OrderID, func(tx *gorm.DB) error {
		_, err := endAttempt(tx, d, map[string]any{"next_at": stored(next), "last_error": fit(why, maxDeliveryError)})
		return err
	})
}

// endAttempt changes a delivery whose claim still holds, and reports whether it does.
// Attempts begin anew when a delivery is sent again, so the end of the lease tells
// claims apart as well.
func endAttempt(tx *gorm.DB, d Delivery, columns map[string]any) (held bool, err error) {
	columns["updated_at"] = now()
	done := tx.Model(&deliveryRow{}).
		Where("order_id = ? AND status = ? AND attempts = ? AND next_at = ?", d.OrderID, DeliveryWaiting, d.Attempts, stored(d.NextAt)).
		UpdateColumns(columns)
	return done.RowsAffected == 1, done.Error
}

// errClaimOver takes a transaction back when the claim that it relies on is over.
var errClaimOver = errors.New("the claim is over")

// GiveUp ends a delivery that was tried for long enough, as the sale's rules say:
// the order is rolled back, and its giveback is to be applied in Redis, or the
// delivery is parked. It returns what became of the delivery: empty when the claim is
// over and nothing changed, failed, parked, or dropped when the order had ended.
func (l *Ledger) GiveUp(ctx context.Context, d Delivery, why string) (status DeliveryStatus, giveback *sale.Giveback, err error) {
	err = l.change(ctx, "give up the delivery of order "+d.OrderID, func(tx *gorm.DB) error {
		status, giveback = DeliveryParked, nil
		sales, err := saleHeaders(tx, []string{d.SaleID})
		if err != nil {
			return err
		}
		if s := sales[d.SaleID]; s != nil && s.Fulfilment != nil && s.Fulfilment.OnFailure == sale.FailureRollback {
			if status, giveback, err = l.rollBack(tx, d.OrderID, why); err != nil {
				return err
			}
		}
		held, err := endAttempt(tx, d, map[string]any{"status": status, "last_error": fit(why, maxDeliveryError)})
		if err == nil && !held {
			err = errClaimOver
		}
		return err
	})
	if errors.Is(err, errClaimOver) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return status, giveback, nil
}

// rollBack rejects an order and gives its stock back. One that is fulfilled, by an
// earlier delivery, is left alone.
func (l *Ledger) rollBack(tx *gorm.DB, orderID, why string) (DeliveryStatus, *sale.Giveback, error) {
	_, giveback, err := l.giveBack(tx, orderID, comeback{
		kind: sale.FlowReject, ref: orderID, actor: ActorFulfilment, reason: why, lines: heldSome, event: sale.EventRejected,
		from: []sale.OrderStatus{sale.OrderPendingPayment, sale.OrderPaid},
		to:   sale.OrderRejected, code: sale.ReasonFulfilmentFailed, refused: wrongStatus,
		repeats: func(*sale.Order, *flowRow, *sale.Giveback) error { return nil },
	})
	state, refused := errors.AsType[*OrderStatusError](err)
	switch {
	case refused && state.Status == sale.OrderFulfilled:
		return DeliveryFailed, nil, nil
	case refused || errors.Is(err, errNothingHeld):
		return DeliveryDropped, nil, nil
	case err != nil:
		return "", nil, err
	}
	return DeliveryFailed, &giveback, nil
}

// errNothingHeld says that everything of an order came back already.
var errNothingHeld = errors.New("the order holds nothing")

// heldSome is held, of an order that holds something.
func heldSome(o *sale.Order) ([]sale.Line, error) {
	lines, err := held(o)
	if err == nil && len(lines) == 0 {
		err = errNothingHeld
	}
	return lines, err
}
