package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// Adjustment raises the stock of an item. Lowering it is a grant: see Record.
type Adjustment struct {
	SaleID, SKU string
	Delta       int64  // units, above zero
	Ref         string // names the adjustment in its sale, at most 128 printable ASCII characters
	Actor       string
	Reason      string
}

// Adjusted is what came of an adjustment.
type Adjusted struct {
	Before, After int64 // remaining units in the ledger
	Step          int64 // After - Before; 0 for a reduction that the ledger refused
	// Giveback is to be applied in Redis; nil for a reduction.
	Giveback *sale.Giveback
	// Replayed says that the ledger had it already, be it from an attempt of this very call whose answer was lost.
	Replayed bool
}

// AdjustUp raises the stock of an item, once per Ref. It answers a
// *sale.FieldError, ErrUnknownItem, ErrUnlimited, and ErrRefReused when the Ref belongs to an
// adjustment of other units or of another item.
func (l *Ledger) AdjustUp(ctx context.Context, a Adjustment) (Adjusted, error) {
	if a.Ref == "" || !printable(a.Ref, maxRef) {
		return Adjusted{}, &sale.FieldError{Field: "ref", Message: fmt.Sprintf("must be 1 to %d printable ASCII characters", maxRef)}
	}
	if a.Delta < 1 || a.Delta > sale.MaxStock {
		return Adjusted{}, stockTooHigh
	}
	var done Adjusted
	err := l.change(ctx, fmt.Sprintf("adjust %s of sale %s", a.SKU, a.SaleID), func(tx *gorm.DB) error {
		var err error
		done, err = l.adjustUp(tx, a)
		return err
	})
	if err != nil {
		return Adjusted{}, err
	}
	return done, nil
}

var stockTooHigh = &sale.FieldError{
	Field: "delta", Message: fmt.Sprintf("must be at least 1 and leave the stock at most %d", sale.MaxStock),
}

func (l *Ledger) adjustUp(tx *gorm.DB, a Adjustment) (Adjusted, error) {
	items, err := l.lockItems(tx, []itemKey{{a.SaleID, a.SKU}})
	if err != nil {
		return Adjusted{}, err
	}
	switch {
	case len(items) == 0:
		return Adjusted{}, ErrUnknownItem
	case items[0].unlimited():
		return Adjusted{}, ErrUnlimited
	}
	done, err := findAdjust(tx, a.SaleID, a.SKU, a.Ref)
	if err == nil && done.Step != a.Delta {
		err = ErrRefReused
	}
	if !errors.Is(err, ErrNotFound) {
		return done, err
	}
	if items[0].Stock+a.Delta > sale.MaxStock {
		return Adjusted{}, stockTooHigh
	}
	giveback := sale.Giveback{
		ID: sale.GivebackID(sale.FlowAdjust, a.Ref), SaleID: a.SaleID, Lines: []sale.Line{{SKU: a.SKU, Quantity: a.Delta}},
	}
	if err := refUnused(tx, giveback); err != nil {
		return Adjusted{}, err
	}
	p := newPosting(items)
	f := flowRow{Kind: sale.FlowAdjust, Ref: a.Ref, Actor: fit(a.Actor, maxActor), Reason: fit(a.Reason, sale.MaxReasonLen)}
	p.move(&items[0], f, func(item *itemRow) { item.Stock += a.Delta })
	if err := l.writePosting(tx, p); err != nil {
		return Adjusted{}, err
	}
	done = Adjusted{Before: p.flows[0].QtyBefore, After: p.flows[0].QtyAfter, Step: a.Delta, Giveback: &giveback}
	return done, l.writeGivebacks(tx, []sale.Giveback{giveback})
}

// refUnused answers ErrRefReused when another item's adjustment has this name.
func refUnused(tx *gorm.DB, g sale.Giveback) error {
	_, err := take[givebackRow](tx.Where("sale_id = ? AND id = ?", g.SaleID, g.ID))
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil:
		return ErrRefReused
	}
	return err
}

// findAdjust returns an adjustment, up or down, or ErrNotFound.
func findAdjust(tx *gorm.DB, saleID, sku, ref string) (Adjusted, error) {
	flow, err := take[flowRow](tx.Where("sale_id = ? AND sku = ? AND kind = ? AND ref = ?", saleID, sku, sale.FlowAdjust, ref))
	if err != nil {
		return Adjusted{}, err
	}
	done := Adjusted{Before: flow.QtyBefore, After: flow.QtyAfter, Step: flow.QtyStep, Replayed: true}
	if flow.QtyStep <= 0 {
		return done, nil
	}
	row, err := take[givebackRow](tx.Where("sale_id = ? AND id = ?", saleID, sale.GivebackID(sale.FlowAdjust, ref)))
	if err != nil {
		return Adjusted{}, fmt.Errorf("giveback of flow %d: %w", flow.Seq, err)
	}
	g, err := row.giveback()
	done.Giveback = &g
	return done, err
}
