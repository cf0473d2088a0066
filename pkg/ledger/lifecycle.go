package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// CreateSale stores a new sale with its items, at revision 1: all or nothing.
// The caller has validated it. It answers ErrSaleExists when the id is taken.
func (l *Ledger) CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, error) {
	s.Revision = 1
	sent := false
	err := l.change(ctx, "create sale "+s.ID, func(tx *gorm.DB) error {
		stored, err := loadSale(tx, s.ID, false)
		switch {
		case err == nil && sent && sameSale(stored, s):
			return nil // The commit of our first attempt took place.
		case err == nil:
			return ErrSaleExists
		case !errors.Is(err, ErrNotFound):
			return err
		}
		err = insertSale(tx, &s, l.cfg.InsertRows)
		sent = err == nil
		return err
	})
	if err != nil {
		return sale.Sale{}, err
	}
	return s, nil
}

func insertSale(tx *gorm.DB, s *sale.Sale, chunk int) error {
	row := saleRow{ID: s.ID, Generation: 0, CreatedAt: now()}
	if err := row.set(s); err != nil {
		return err
	}
	if err := tx.Create(&row).Error; err != nil {
		return err
	}
	return insertItems(tx, s, chunk)
}

func insertItems(tx *gorm.DB, s *sale.Sale, chunk int) error {
	items := make([]itemRow, len(s.Items))
	for i, it := range s.Items {
		items[i] = itemRow{SaleID: s.ID, SKU: it.SKU, Position: i, Stock: it.Stock, PriceCents: it.PriceCents}
	}
	return insert(tx, items, chunk)
}

// copyOf shares nothing that can be changed with s.
func copyOf(s sale.Sale) sale.Sale {
	s.Items, s.Limits = slices.Clone(s.Items), slices.Clone(s.Limits)
	if s.Fulfilment != nil {
		f := *s.Fulfilment
		s.Fulfilment = &f
	}
	return s
}

func sameSale(a, b sale.Sale) bool {
	for _, s := range []*sale.Sale{&a, &b} {
		s.StartsAt, s.EndsAt = stored(s.StartsAt), stored(s.EndsAt)
	}
	return reflect.DeepEqual(a, b)
}

// set takes over everything of a sale that may change.
func (r *saleRow) set(s *sale.Sale) error {
	r.Name, r.Status, r.Timezone = s.Name, s.Status, s.Timezone
	r.StartsAt, r.EndsAt = stored(s.StartsAt), stored(s.EndsAt)
	r.PaymentWindowMS = time.Duration(s.PaymentWindow).Milliseconds()
	r.PerUserLimit, r.Revision, r.UpdatedAt = s.PerUserLimit, s.Revision, now()
	rules, err := json.Marshal(s.Rules)
	if err != nil {
		return fmt.Errorf("encode rules of sale %s: %w", s.ID, err)
	}
	r.Rules = string(rules)
	return nil
}

func (r *saleRow) sale(items []itemRow) (sale.Sale, error) {
	s := sale.Sale{
		ID: r.ID, Name: r.Name, Status: r.Status, StartsAt: r.StartsAt, EndsAt: r.EndsAt,
		PaymentWindow: sale.Duration(time.Duration(r.PaymentWindowMS) * time.Millisecond),
		PerUserLimit:  r.PerUserLimit, Timezone: r.Timezone, Revision: r.Revision,
		Items: make([]sale.Item, len(items)),
	}
	for i, it := range items {
		s.Items[i] = sale.Item{SKU: it.SKU, Stock: it.Stock, PriceCents: it.PriceCents}
	}
	if err := json.Unmarshal([]byte(r.Rules), &s.Rules); err != nil {
		return sale.Sale{}, fmt.Errorf("rules of sale %s: %w", r.ID, err)
	}
	return s, nil
}

// loadSale reads a sale with its items, in their order.
func loadSale(tx *gorm.DB, id string, lock bool) (sale.Sale, error) {
	query := tx.Where("id = ?", id)
	if lock {
		query = query.Clauses(clause.Locking{Strength: "UPDATE"})
	}
	row, err := take[saleRow](query)
	if err != nil {
		return sale.Sale{}, err
	}
	var items []itemRow
	if err := tx.Where("sale_id = ?", id).Order("position").Find(&items).Error; err != nil {
		return sale.Sale{}, err
	}
	return row.sale(items)
}

// UpdateStatus moves a sale from one of the given states to another. In that
// state already, it changes nothing. It answers ErrNotFound, and *SaleStatusError when
// the sale is in any other state.
func (l *Ledger) UpdateStatus(ctx context.Context, id string, from []sale.Status, to sale.Status) (sale.Sale, error) {
	return l.EditSale(ctx, id, Cause{}, func(s *sale.Sale) error {
		if s.Status != to && !slices.Contains(from, s.Status) {
			return &SaleStatusError{SaleID: id, Status: s.Status}
		}
		s.Status = to
		return nil
	})
}

// EditSale changes everything of a sale but its id and its items, under its
// lock, and notes what changed in its history. Its revision grows by one, unless edit
// changes nothing. It answers ErrNotFound, and what edit answers. edit may be called
// more than once.
func (l *Ledger) EditSale(ctx context.Context, id string, by Cause, edit func(*sale.Sale) error) (sale.Sale, error) {
	var edited sale.Sale
	err := l.change(ctx, "edit sale "+id, func(tx *gorm.DB) error {
		before, err := loadSale(tx, id, true)
		if err != nil {
			return err
		}
		edited = copyOf(before)
		if err := edit(&edited); err != nil {
			return err
		}
		edited.ID, edited.Items, edited.Revision = before.ID, before.Items, before.Revision
		if sameSale(before, edited) {
			return nil
		}
		edited.Revision++
		if err := updateSale(tx, &edited); err != nil {
			return err
		}
		return l.writeChanges(tx, &before, &edited, by)
	})
	if err != nil {
		return sale.Sale{}, err
	}
	return edited, nil
}

// updateSale writes everything of a sale that may change, except its items.
func updateSale(tx *gorm.DB, s *sale.Sale) error {
	var row saleRow
	if err := row.set(s); err != nil {
		return err
	}
	return tx.Model(&saleRow{}).Where("id = ?", s.ID).
		Select("name", "status", "starts_at", "ends_at", "payment_window_ms", "per_user_limit", "timezone", "rules",
			"revision", "updated_at").
		UpdateColumns(&row).Error
}

// GetSale returns a sale with its items, or ErrNotFound. The items' stock
// contains every adjustment.
func (l *Ledger) GetSale(ctx context.Context, id string) (sale.Sale, error) {
	s, err := loadSale(l.read.WithContext(ctx), id, false)
	if err != nil {
		return sale.Sale{}, fmt.Errorf("sale %s: %w", id, err)
	}
	return s, nil
}

// ListSales returns sales with an id above after, ordered by id, at most limit
// (1 to PageMax). The last one's ID is the next after. Those that carry a quota are
// not among them.
func (l *Ledger) ListSales(ctx context.Context, after string, limit int) ([]sale.Sale, error) {
	return l.listSales(ctx, limit, "id > ? AND (id < ? OR id >= ?)", after, sale.QuotaPrefix, quotasEnd)
}

// ListQuotas is ListSales for the sales that carry a quota.
func (l *Ledger) ListQuotas(ctx context.Context, after string, limit int) ([]sale.Sale, error) {
	return l.listSales(ctx, limit, "id > ? AND id < ?", max(after, sale.QuotaPrefix), quotasEnd)
}

// quotasEnd is the first text behind the ids that begin with sale.QuotaPrefix: its
// last character is the one after "_".
const quotasEnd = "quota`"

func (l *Ledger) listSales(ctx context.Context, limit int, which string, values ...any) ([]sale.Sale, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	db := l.read.WithContext(ctx)
	var rows []saleRow
	if err := db.Where(which, values...).Order("id").Limit(limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list sales: %w", err)
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	var items []itemRow
	if err := db.Where("sale_id IN ?", ids).Order("sale_id, position").Find(&items).Error; err != nil {
		return nil, fmt.Errorf("list items: %w", err)
	}
	bySale := make(map[string][]itemRow, len(rows))
	for _, it := range items {
		bySale[it.SaleID] = append(bySale[it.SaleID], it)
	}
	sales := make([]sale.Sale, len(rows))
	for i := range rows {
		var err error
		if sales[i], err = rows[i].sale(bySale[rows[i].ID]); err != nil {
			return nil, err
		}
	}
	return sales, nil
}

// NextGeneration raises the generation of a sale by one and returns it: the
// number of its next restore. A number may be skipped, none is given twice.
func (l *Ledger) NextGeneration(ctx context.Context, saleID string) (int64, error) {
	var next int64
	err := l.change(ctx, "next generation of sale "+saleID, func(tx *gorm.DB) error {
		row, err := take[saleRow](tx.Clauses(clause.Locking{Strength: "UPDATE"}).Where("id = ?", saleID))
		if err != nil {
			return err
		}
		next = row.Generation + 1
		return tx.Model(&saleRow{}).Where("id = ?", saleID).UpdateColumn("generation", next).Error
	})
	if err != nil {
		return 0, err
	}
	return next, nil
}

// SetGeneration raises the generation of a sale to at least this one.
func (l *Ledger) SetGeneration(ctx context.Context, saleID string, generation int64) error {
	return l.change(ctx, "set generation of sale "+saleID, func(tx *gorm.DB) error {
		return tx.Model(&saleRow{}).Where("id = ? AND generation < ?", saleID, generation).
			UpdateColumn("generation", generation).Error
	})
}
