package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// DueOrder is a place among the orders that are due: by the end of their payment
// window, then by id. The zero value stands before the first.
type DueOrder struct {
	ExpiresAt time.Time
	OrderID   string
}

// Expired is what came of one look at orders whose payment window is over.
type Expired struct {
	// Due is how many were found; those that are not in Givebacks were paid,
	// cancelled, expired or locked by somebody else, or are Stuck.
	Due int
	// Givebacks are to be applied in Redis, one for each order that expired.
	Givebacks []sale.Giveback
	// Stuck are orders that can't expire, because of what is in the ledger.
	Stuck []StuckOrder
	// First and Last are the first and last order that were found; the next look goes
	// on after Last. They are set even when writing failed.
	First, Last DueOrder
}

// StuckOrder is an order that can't expire, and why.
type StuckOrder struct {
	OrderID string
	Reason  error
}

// expiryActor is who the stock log says it was.
const expiryActor = "expiry"

// ExpireDue ends orders that were not paid in time, as of a moment by the database's
// clock (see Time), at most limit (1 to PageMax) of those after a place, in one transaction, and decides that their stock comes back.
// Any number of processes may call it: an order expires once, and none that is paid
// does. What somebody else has locked at the moment is left to the next look. Where a
// commit took place and its answer was lost, the givebacks are missing in the answer
// but not in the ledger.
func (l *Ledger) ExpireDue(ctx context.Context, at time.Time, after DueOrder, limit int) (Expired, error) {
	if err := checkLimit(limit); err != nil {
		return Expired{}, err
	}
	due, err := l.dueOrders(ctx, at, after, limit)
	if err != nil || len(due) == 0 {
		return Expired{}, err
	}
	found := Expired{Due: len(due), First: due[0].due(), Last: due[len(due)-1].due()}
	err = l.change(ctx, "expire orders", func(tx *gorm.DB) error {
		found.Givebacks, found.Stuck = nil, nil
		return l.expire(tx, due, &found)
	})
	if err != nil {
		found.Givebacks = nil
	}
	return found, err
}

func (r *orderRow) due() DueOrder { return DueOrder{r.ExpiresAt.Time, r.ID} }

// dueOrders reads the orders that are due, in their order, without locking them.
func (l *Ledger) dueOrders(ctx context.Context, at time.Time, after DueOrder, limit int) ([]orderRow, error) {
	query := l.read.WithContext(ctx).Where("status = ? AND expires_at <= ?", sale.OrderPendingPayment, stored(at))
	if after.OrderID != "" {
		from := stored(after.ExpiresAt)
		query = query.Where("expires_at >= ? AND (expires_at > ? OR id > ?)", from, from, after.OrderID)
	}
	var due []orderRow
	if err := query.Order("expires_at, id").Limit(limit).Find(&due).Error; err != nil {
		return nil, fmt.Errorf("look for orders that are due: %w", err)
	}
	return due, nil
}

// expire ends those of the orders that still wait for their payment.
func (l *Ledger) expire(tx *gorm.DB, due []orderRow, found *Expired) error {
	b, err := l.lockForComebacks(tx, due)
	if err != nil {
		return err
	}
	ids := make([]string, len(due))
	for i := range due {
		ids[i] = due[i].ID
	}
	var rows []orderRow
	err = tx.Table(l.store.locked("orders")).Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).
		Where("id IN ?", ids).Order("id").Find(&rows).Error
	if err != nil {
		return fmt.Errorf("lock orders that are due: %w", err)
	}
	for i := range rows {
		if rows[i].Status != sale.OrderPendingPayment {
			continue
		}
		order, err := rows[i].order()
		if err == nil {
			err = b.comeBack(&rows[i], &order, expiry(order.ID))
		}
		if err != nil {
			found.Stuck = append(found.Stuck, StuckOrder{rows[i].ID, err})
		}
	}
	found.Givebacks = b.givebacks
	return l.writeComebacks(tx, b)
}

func expiry(orderID string) comeback {
	return comeback{
		kind: sale.FlowExpire, ref: orderID, actor: expiryActor, lines: held, event: sale.EventExpired,
		from: []sale.OrderStatus{sale.OrderPendingPayment}, to: sale.OrderExpired, code: sale.ReasonPaymentTimeout,
	}
}
