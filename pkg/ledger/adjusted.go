package ledger

import (
	"context"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// AdjustmentRecord is an adjustment, up or down, as it stands in the ledger.
type AdjustmentRecord struct {
	// Flow is its line in the stock log. Its Step is 0 for a reduction that was refused.
	Flow sale.Flow
	// StockBefore and StockAfter are the item's whole stock around it, sold units too.
	StockBefore, StockAfter int64
	// Giveback is what Redis gets by it; nil for a reduction.
	Giveback *sale.Giveback
}

// AdjustmentRecord looks an adjustment up. It answers ErrNotFound.
func (l *Ledger) AdjustmentRecord(ctx context.Context, saleID, sku, ref string) (AdjustmentRecord, error) {
	var record AdjustmentRecord
	err := l.consistent(ctx, func(tx *gorm.DB) error {
		ofItem := tx.Where("sale_id = ? AND sku = ? AND counter = ''", saleID, sku).Session(&gorm.Session{})
		flow, err := take[flowRow](ofItem.Where("kind = ? AND ref = ?", sale.FlowAdjust, ref))
		if err != nil {
			return err
		}
		item, err := take[itemRow](tx.Where("sale_id = ? AND sku = ?", saleID, sku))
		if err != nil {
			return err
		}
		// The stock now, without what came later. To the log unlimited stock is none; when
		// the adjustment was made it was limited.
		var later int64
		err = ofItem.Model(&flowRow{}).Select("COALESCE(SUM(qty_step), 0)").
			Where("kind IN ? AND seq > ?", []sale.FlowKind{sale.FlowAdjust, sale.FlowStock}, flow.Seq).Row().Scan(&later)
		if err != nil {
			return err
		}
		record = AdjustmentRecord{Flow: flow.flow(), StockAfter: max(item.Stock, 0) - later}
		record.StockBefore = record.StockAfter - flow.QtyStep
		if flow.QtyStep <= 0 {
			return nil
		}
		row, err := take[givebackRow](tx.Where("sale_id = ? AND id = ?", saleID, sale.GivebackID(sale.FlowAdjust, ref)))
		if err != nil {
			return fmt.Errorf("giveback of flow %d: %w", flow.Seq, err)
		}
		g, err := row.giveback()
		record.Giveback = &g
		return err
	})
	if err != nil {
		return AdjustmentRecord{}, fmt.Errorf("adjustment %s of %s of sale %s: %w", ref, sku, saleID, err)
	}
	return record, nil
}
