package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// FlowQuery asks for a page of the log of a sale; what is empty asks for all.
type FlowQuery struct {
	SaleID  string
	SKU     string
	Counter string // LIMIT_NAME/PERIOD/SUBJECT
	OrderID string
	After   int64 // the last Seq of the page before
	Limit   int   // 1 to PageMax
}

// ListFlows returns a page of the log, oldest first. Who follows the log while it
// grows does so per SKU or counter: lines of different ones may become visible out of
// order.
func (l *Ledger) ListFlows(ctx context.Context, q FlowQuery) ([]sale.Flow, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	db := l.read.WithContext(ctx)
	query := db.Where("sale_id = ? AND seq > ?", q.SaleID, q.After)
	if q.SKU != "" || q.Counter != "" {
		query = query.Where("sku = ? AND counter = ?", q.SKU, q.Counter)
	}
	if q.OrderID != "" {
		var err error
		if query, err = l.ofOrder(db, query, q.OrderID); err != nil {
			return nil, fmt.Errorf("list flows of order %s: %w", q.OrderID, err)
		}
	}
	var rows []flowRow
	if err := query.Order("seq").Limit(q.Limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list flows of sale %s: %w", q.SaleID, err)
	}
	flows := make([]sale.Flow, len(rows))
	for i := range rows {
		flows[i] = rows[i].flow()
	}
	return flows, nil
}

// ofOrder narrows a query of flows down to those of an order. No index leads from an
// order to its flows; its items, its counters and its id do: what names a flow of an
// order is the order's id or, of a return, begins with the part of it behind the sale's.
func (l *Ledger) ofOrder(db, query *gorm.DB, orderID string) (*gorm.DB, error) {
	query = query.Where("order_id = ?", orderID)
	row, err := take[orderRow](db.Where("id = ?", orderID))
	if errors.Is(err, ErrNotFound) {
		return query.Where("1 = 0"), nil // what has no row has no flow
	}
	if err != nil {
		return nil, err
	}
	o, err := row.order()
	if err != nil {
		return nil, err
	}
	headers, err := saleHeaders(db, []string{o.SaleID})
	if err != nil {
		return nil, err
	}
	skus, counters := []string{""}, []string{""}
	for _, line := range o.Lines {
		skus = append(skus, line.SKU)
	}
	if s := headers[o.SaleID]; s != nil {
		for _, key := range countersOf(s, grantOf(&o)) {
			counters = append(counters, key.name())
		}
	}
	_, code, _ := strings.Cut(orderID, ".")
	return query.Table(l.store.by("flows", "flows_once")).
		Where("sku IN ? AND counter IN ? AND kind IN ? AND (ref = ? OR ref LIKE ?)", skus, counters, sale.FlowKinds, orderID, code+":%"), nil
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
