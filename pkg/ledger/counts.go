package ledger

import (
	"context"
	"fmt"
)

// ItemCounts returns the counts of the items of some sales, at most PageMax, by
// sale id, each in its sale's order.
func (l *Ledger) ItemCounts(ctx context.Context, saleIDs []string) (map[string][]ItemTotals, error) {
	if len(saleIDs) > PageMax {
		return nil, fmt.Errorf("ledger: counts of at most %d sales", PageMax)
	}
	var rows []itemRow
	err := l.read.WithContext(ctx).Where("sale_id IN ?", saleIDs).Order("sale_id, position").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("count items: %w", err)
	}
	counts := make(map[string][]ItemTotals, len(saleIDs))
	for i, r := range rows {
		counts[r.SaleID] = append(counts[r.SaleID], itemTotals(rows[i:i+1])...)
	}
	return counts, nil
}
