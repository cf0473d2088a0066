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
	at := now()
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
	Deliveries []Delivery
	Dropped    int // whose orders had ended: not to be made any more
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
		at := now()
		var rows []deliveryRow
		err := tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).
			Where("status = ? AND host = ? AND next_at <= ?", DeliveryWaiting, host, at).
			Order("next_at").Limit(limit).Find(&rows).Error
		if err != nil || len(rows) == 0 {
			claims = Claims{}
			return err
		}
		live, ended, err := liveAndEnded(tx, rows)
		if err != nil {
			return err
		}
		if len(ended) > 0 {
			if err := dropDeliveries(tx, ended); err != nil {
				return err
			}
		}
		claims = Claims{Dropped: len(ended)}
		if len(live) == 0 {
			return nil
		}
		ids, until := make([]string, len(live)), stored(at.Add(lease))
		for i := range live {
			live[i].NextAt, live[i].Attempts, ids[i] = until, live[i].Attempts+1, live[i].OrderID
		}
		claims.Deliveries = deliveries(live)
		return tx.Model(&deliveryRow{}).Where("order_id IN ?", ids).
			UpdateColumns(map[string]any{"next_at": until, "attempts": gorm.Expr("attempts + 1"), "updated_at": at}).Error
	})
	if err != nil {
		return Claims{}, err
	}
	return claims, nil
}

// liveAndEnded tells the deliveries of live orders from those of orders that have
// ended, or of which everything came back.
func liveAndEnded(tx *gorm.DB, rows []deliveryRow) (live []deliveryRow, ended []string, err error) {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.OrderID
	}
	var orders []orderRow
	if err := tx.Select("id", "status", "items").Where("id IN ?", ids).Find(&orders).Error; err != nil {
		return nil, nil, fmt.Errorf("look orders up: %w", err)
	}
	alive := make(map[string]bool, len(orders))
	for i := range orders {
		o, err := orders[i].order()
		if err != nil {
			return nil, nil, err
		}
		left, _ := held(&o)
		alive[o.ID] = o.Status.Live() && len(left) > 0
	}
	for _, r := range rows {
		if alive[r.OrderID] {
			live = append(live, r)
		} else {
			ended = append(ended, r.OrderID)
		}
	}
	return live, ended, nil
}
