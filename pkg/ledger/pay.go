package ledger

import (
	"context"
	"database/sql"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Pay marks an order as paid. Of paying, cancelling and expiring the first to lock
// the order's row wins; the clock does not decide, so that a payment is accepted for
// as long as nobody has ended the order. Paying again changes nothing. It answers
// ErrNotFound, and *OrderStatusError for an order that has ended: the payment came
// too late, and an event tells the shop to refund it, once per order.
func (l *Ledger) Pay(ctx context.Context, orderID string) (sale.Order, error) {
	var order sale.Order
	err := l.change(ctx, "pay order "+orderID, func(tx *gorm.DB) error {
		key := tx.Where("id = ?", orderID).Session(&gorm.Session{})
		if _, err := take[orderRow](key); err != nil {
			return err // not written yet: nothing to wait for
		}
		row, err := take[orderRow](key.Clauses(clause.Locking{Strength: "UPDATE"}))
		if err != nil {
			return err
		}
		if order, err = row.order(); err != nil {
			return err
		}
		return l.pay(tx, &row, &order)
	})
	switch {
	case err != nil:
		return sale.Order{}, err
	case !paid(order.Status):
		return sale.Order{}, wrongStatus(&order)
	}
	return order, nil
}

func paid(status sale.OrderStatus) bool {
	return status == sale.OrderPaid || status == sale.OrderFulfilled
}

// pay decides about a locked order, and writes what it decides.
func (l *Ledger) pay(tx *gorm.DB, row *orderRow, order *sale.Order) error {
	p := newPosting(nil)
	event := sale.EventPaid
	switch {
	case order.Status == sale.OrderPendingPayment:
		row.Status = sale.OrderPaid
	case paid(order.Status) || row.LatePaymentAt.Valid:
		return nil
	default:
		event = sale.EventLatePayment
		row.LatePaymentAt = sql.NullTime{Time: p.at, Valid: true}
	}
	row.UpdatedAt = p.at
	order.Status, order.UpdatedAt, order.LatePaymentAt = row.Status, row.UpdatedAt, row.LatePaymentAt.Time
	if err := p.tell(event, order, ""); err != nil {
		return err
	}
	if err := l.writePosting(tx, p); err != nil {
		return err
	}
	return l.updateOrders(tx, []orderRow{*row})
}
