package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// DueHosts looks at the receivers that deliveries wait for, from the first one
// above after on and in order of their names, at most limit (1 to PageMax). It returns
// those that have one due, the one that waits longest first. next is the after of the next page,
// empty after the last. How many deliveries wait for a receiver makes no difference to the time it takes.
func (l *Ledger) DueHosts(ctx context.Context, after string, limit int) (hosts []string, next string, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, "", err
	}
	var due []deliveryRow
	at, err := l.Time(ctx)
	if err != nil {
		return nil, "", err
	}
	for range limit {
		// One step down the index per receiver; a GROUP BY would read all that wait.
		first, err := take[deliveryRow](l.read.WithContext(ctx).Select("host", "next_at").
			Where("status = ? AND host > ?", DeliveryWaiting, after).Order("host, next_at"))
		if errors.Is(err, ErrNotFound) {
			return longestFirst(due), "", nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("list receivers with due deliveries: %w", err)
		}
		after = first.Host
		if !first.NextAt.After(at) {
			due = append(due, first)
		}
	}
	return longestFirst(due), after, nil
}

func longestFirst(due []deliveryRow) []string {
	slices.SortStableFunc(due, func(a, b deliveryRow) int { return a.NextAt.Compare(b.NextAt) })
	hosts := make([]string, len(due))
	for i := range due {
		hosts[i] = due[i].Host
	}
	return hosts
}

// Claims is what ClaimDeliveries took.
type Claims struct {
	At         time.Time // when it did, by the database's clock
	Deliveries []Delivery
	Dropped    int        // whose orders had ended: not to be made any more
	Parked     []Delivery // whose orders can't be read, which is in LastError: for an operator
}

// ClaimDeliveries takes due deliveries for one receiver, at most limit (1 to
// PageMax), and leaves those alone that another is just taking. Each one is the
// caller's for the length of the lease; then it is due again, for whoever comes, so
// that what a crashed process had claimed is done by another. A claim counts as an attempt.
func (l *Ledger) ClaimDeliveries(ctx context.Context, host string, limit int, lease time.Duration) (Claims, error) {
	if err := checkLimit(limit); err != nil {
		return Claims{}, err
	}
	var claims Claims
	err := l.change(ctx, "claim deliveries", func(tx *gorm.DB) error {
		at, err := l.clock(tx)
		if err != nil {
			return err
		}
		var rows []deliveryRow
		err = tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).
			Where("status = ? AND host = ? AND next_at <= ?", DeliveryWaiting, host, at).
			Order("next_at").Limit(limit).Find(&rows).Error
		if err != nil || len(rows) == 0 {
			claims = Claims{At: at}
			return err
		}
		found, err := sortDue(tx, rows)
		if err != nil {
			return err
		}
		if len(found.ended) > 0 {
			if err := dropDeliveries(tx, found.ended); err != nil {
				return err
			}
		}
		if err := park(tx, found.unreadable, at); err != nil {
			return err
		}
		claims = Claims{At: at, Dropped: len(found.ended), Parked: deliveries(found.unreadable)}
		if len(found.live) == 0 {
			return nil
		}
		ids, until := make([]string, len(found.live)), stored(at.Add(lease))
		for i := range found.live {
			row := &found.live[i]
			row.NextAt, row.Attempts, ids[i] = until, row.Attempts+1, row.OrderID
		}
		claims.Deliveries = deliveries(found.live)
		return tx.Model(&deliveryRow{}).Where("order_id IN ?", ids).
			UpdateColumns(map[string]any{"next_at": until, "attempts": gorm.Expr("attempts + 1"), "updated_at": at}).Error
	})
	if err != nil {
		return Claims{}, err
	}
	return claims, nil
}

// sorted are due deliveries by what their orders say.
type sorted struct {
	live       []deliveryRow
	ended      []string // orders that have ended, or of which everything came back
	unreadable []deliveryRow
}

// sortDue looks the orders of due deliveries up.
func sortDue(tx *gorm.DB, rows []deliveryRow) (sorted, error) {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.OrderID
	}
	var orders []orderRow
	if err := tx.Select("id", "status", "items").Where("id IN ?", ids).Find(&orders).Error; err != nil {
		return sorted{}, fmt.Errorf("look orders up: %w", err)
	}
	alive, unread := make(map[string]bool, len(orders)), make(map[string]error)
	for i := range orders {
		o, err := orders[i].order()
		if err != nil {
			unread[orders[i].ID] = err
			continue
		}
		left, _ := held(&o)
		alive[o.ID] = o.Status.Live() && len(left) > 0
	}
	var found sorted
	for _, r := range rows {
		switch err := unread[r.OrderID]; {
		case err != nil:
			r.LastError = fit(err.Error(), maxDeliveryError)
			found.unreadable = append(found.unreadable, r)
		case alive[r.OrderID]:
			found.live = append(found.live, r)
		default:
			found.ended = append(found.ended, r.OrderID)
		}
	}
	return found, nil
}

// park leaves deliveries to an operator, for the reason that is in their last errors.
func park(tx *gorm.DB, rows []deliveryRow, at time.Time) error {
	for i := range rows {
		rows[i].Status, rows[i].UpdatedAt = DeliveryParked, at
		if err := tx.Select("status", "last_error", "updated_at").UpdateColumns(&rows[i]).Error; err != nil {
			return fmt.Errorf("park the delivery of order %s: %w", rows[i].OrderID, err)
		}
	}
	return nil
}
