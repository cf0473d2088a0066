package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// GetGiveback returns one giveback of a sale, or ErrNotFound.
func (l *Ledger) GetGiveback(ctx context.Context, saleID, id string) (sale.Giveback, error) {
	g, err := l.findGiveback(ctx, saleID, id)
	if err == nil && g == nil {
		err = ErrNotFound
	}
	if err != nil {
		return sale.Giveback{}, fmt.Errorf("giveback %s of sale %s: %w", id, saleID, err)
	}
	return *g, nil
}

// findGiveback returns nil when there is none.
func (l *Ledger) findGiveback(ctx context.Context, saleID, id string) (*sale.Giveback, error) {
	row, err := take[givebackRow](l.read.WithContext(ctx).Where("sale_id = ? AND id = ?", saleID, id))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g, err := row.giveback()
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// UnappliedGivebacks returns givebacks that Redis is not known to have, of all
// sales, ordered by sale and id, at most limit (1 to PageMax). after is the last one
// of the page before, nil for the first: a giveback that cannot be applied yet
// must not keep others waiting.
func (l *Ledger) UnappliedGivebacks(ctx context.Context, after *sale.Giveback, limit int) ([]sale.Giveback, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	query := l.read.WithContext(ctx).Where("applied_at IS NULL")
	if after != nil {
		query = query.Where("(sale_id > ? OR sale_id = ? AND id > ?)", after.SaleID, after.SaleID, after.ID)
	}
	var rows []givebackRow
	if err := query.Order("sale_id, id").Limit(limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list unapplied givebacks: %w", err)
	}
	givebacks := make([]sale.Giveback, 0, len(rows))
	for i := range rows {
		g, err := rows[i].giveback()
		if err != nil {
			return nil, err
		}
		givebacks = append(givebacks, g)
	}
	return givebacks, nil
}

// MarkApplied notes that Redis has these givebacks of a sale.
func (l *Ledger) MarkApplied(ctx context.Context, saleID string, ids []string) error {
	sorted := slices.Sorted(slices.Values(ids)) // Everybody locks in this order.
	for chunk := range slices.Chunk(sorted, l.cfg.InsertRows) {
		err := l.change(ctx, "mark givebacks of sale "+saleID+" applied", func(tx *gorm.DB) error {
			return tx.Model(&givebackRow{}).Where("sale_id = ? AND id IN ? AND applied_at IS NULL", saleID, chunk).
				UpdateColumn("applied_at", now()).Error
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AllGivebackIDs visits every giveback of a sale that was decided at since or later,
// applied or not, in no particular order, with its units. The zero time is ever.
func (l *Ledger) AllGivebackIDs(ctx context.Context, saleID string, since time.Time, visit func(id string, units int64) error) error {
	return visitGivebacks(l.read.WithContext(ctx), saleID, since, visit)
}

func visitGivebacks(tx *gorm.DB, saleID string, since time.Time, visit func(id string, units int64) error) error {
	query := tx.Model(&givebackRow{}).Select("id", "units").Where("sale_id = ?", saleID)
	if !since.IsZero() {
		query = query.Where("decided_at >= ?", stored(since))
	}
	err := eachRow(query, func(scan scanner) error {
		var id string
		var units int64
		if err := scan(&id, &units); err != nil {
			return err
		}
		return visit(id, units)
	})
	if err != nil {
		return fmt.Errorf("read givebacks of sale %s: %w", saleID, err)
	}
	return nil
}
