package ledger

import (
	"context"
	"slices"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// EditDraft changes everything of a draft but its id, its items too: nothing
// was sold of them. Its revision grows by one, unless edit changes nothing. It answers
// ErrNotFound, *SaleStatusError when the sale is no draft any more, and what edit
// answers. edit may be called more than once.
func (l *Ledger) EditDraft(ctx context.Context, id string, edit func(*sale.Sale) error) (sale.Sale, error) {
	var edited sale.Sale
	err := l.change(ctx, "edit draft "+id, func(tx *gorm.DB) error {
		before, err := loadSale(tx, id, true)
		if err != nil {
			return err
		}
		if before.Status != sale.StatusDraft {
			return &SaleStatusError{SaleID: id, Status: before.Status}
		}
		edited = copyOf(before)
		if err := edit(&edited); err != nil {
			return err
		}
		edited.ID, edited.Revision = before.ID, before.Revision
		if sameSale(before, edited) {
			return nil
		}
		edited.Revision++
		if err := updateSale(tx, &edited); err != nil {
			return err
		}
		if slices.Equal(before.Items, edited.Items) {
			return nil
		}
		if err := tx.Where("sale_id = ?", id).Delete(&itemRow{}).Error; err != nil {
			return err
		}
		return insertItems(tx, &edited, l.cfg.InsertRows)
	})
	if err != nil {
		return sale.Sale{}, err
	}
	return edited, nil
}
