package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// take reads the one row that the query finds, or ErrNotFound.
func take[Row any](query *gorm.DB) (Row, error) {
	var row Row
	err := query.Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return row, ErrNotFound
	}
	return row, err
}

func checkLimit(limit int) error {
	if limit < 1 || limit > PageMax {
		return fmt.Errorf("ledger: a page must be of 1 to %d rows", PageMax)
	}
	return nil
}

// scanner reads the columns of one row.
type scanner func(columns ...any) error

// eachRow streams the rows of a query; memory does not grow with their number.
func eachRow(query *gorm.DB, visit func(scanner) error) error {
	rows, err := query.Rows()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := visit(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// GetOrder returns one order, or ErrNotFound.
func (l *Ledger) GetOrder(ctx context.Context, orderID string) (sale.Order, error) {
	row, err := take[orderRow](l.read.WithContext(ctx).Where("id = ?", orderID))
	if err != nil {
		return sale.Order{}, fmt.Errorf("order %s: %w", orderID, err)
	}
	return row.order()
}

// OrderQuery asks for a page of the orders of a sale.
type OrderQuery struct {
	SaleID string
	After  string           // the last order id of the page before; empty for the first
	Limit  int              // 1 to PageMax
	Status sale.OrderStatus // empty for all
	User   string           // empty for all
}

// ListOrders returns a page of orders, ordered by id, which is no order in time.
func (l *Ledger) ListOrders(ctx context.Context, q OrderQuery) ([]sale.Order, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	query := ofSale(l.read.WithContext(ctx), q.SaleID)
	if q.After != "" {
		query = query.Where("id > ?", q.After)
	}
	if q.Status != "" {
		query = query.Where("status = ?", q.Status)
	}
	if q.User != "" {
		query = query.Where("user_id = ?", q.User)
	}
	var rows []orderRow
	if err := query.Order("id").Limit(q.Limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list orders of sale %s: %w", q.SaleID, err)
	}
	orders := make([]sale.Order, 0, len(rows))
	for i := range rows {
		o, err := rows[i].order()
		if err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, nil
}

// ofSale selects the orders of a sale as a range of the primary key: their ids
// begin with the sale's and a dot, and the slash is what follows the dot.
func ofSale(query *gorm.DB, saleID string) *gorm.DB {
	return query.Where("sale_id = ? AND id > ? AND id < ?", saleID, saleID+".", saleID+"/")
}

// ListFlows returns flows of a sale with a Seq above after, oldest first, at most
// limit (1 to PageMax); of one SKU unless sku is empty. Who follows the log while it
// grows does so per SKU: lines of different SKUs may become visible out of order.
func (l *Ledger) ListFlows(ctx context.Context, saleID, sku string, after int64, limit int) ([]sale.Flow, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	query := l.read.WithContext(ctx).Where("sale_id = ? AND seq > ?", saleID, after)
	if sku != "" {
		query = query.Where("sku = ?", sku)
	}
	var rows []flowRow
	if err := query.Order("seq").Limit(limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list flows of sale %s: %w", saleID, err)
	}
	flows := make([]sale.Flow, len(rows))
	for i := range rows {
		flows[i] = rows[i].flow()
	}
	return flows, nil
}

// ItemTotals are the counts of one item, in units.
type ItemTotals struct {
	SKU        string
	Stock      int64 // with every adjustment; sale.Unlimited for no bound
	Granted    int64 // ever taken by orders
	Returned   int64 // came back
	Sold       int64 // Granted - Returned
	PriceCents int64
}

func itemTotals(rows []itemRow) []ItemTotals {
	totals := make([]ItemTotals, len(rows))
	for i, r := range rows {
		totals[i] = ItemTotals{
			SKU: r.SKU, Stock: r.Stock, Granted: r.Granted, Returned: r.Granted - r.Sold, Sold: r.Sold, PriceCents: r.PriceCents,
		}
	}
	return totals
}
