package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// comeback is one way in which stock of an order comes back.
type comeback struct {
	kind          sale.FlowKind
	ref           string // with kind, names this comeback in its sale
	actor, reason string // of the flows
	from          []sale.OrderStatus
	// to is what the order becomes, code why; an empty to leaves both as they are.
	to   sale.OrderStatus
	code string
	// lines says what comes back of the order.
	lines func(*sale.Order) ([]sale.Line, error)
	// event is told with told as its ref; see tell.
	event sale.EventKind
	told  string
	// refused is the error for an order whose status is not in from.
	refused func(*sale.Order) error
	// repeats judges a comeback of this name that is in the ledger: nil when it is
	// this very one.
	repeats func(*sale.Order, *flowRow, *sale.Giveback) error
}

// wrongStatus is how a comeback is usually refused.
func wrongStatus(o *sale.Order) error { return &OrderStatusError{OrderID: o.ID, Status: o.Status} }

// held is everything of an order that did not come back yet.
func held(o *sale.Order) ([]sale.Line, error) {
	var lines []sale.Line
	for _, l := range o.Lines {
		if left := l.Quantity - l.Returned; left > 0 {
			lines = append(lines, sale.Line{SKU: l.SKU, Quantity: left, PriceCents: l.PriceCents})
		}
	}
	return lines, nil
}

// comebacks is what comes back of orders in one transaction: a posting, and the
// orders and givebacks that belong to it.
type comebacks struct {
	*posting

	sales     map[string]*sale.Sale // by id, without their items
	moved     []orderRow            // the orders as they are to be
	givebacks []sale.Giveback
}

// lockForComebacks locks what is locked before the orders: their items. The rows
// may be read without a lock; what an order took never changes.
func (l *Ledger) lockForComebacks(tx *gorm.DB, rows []orderRow) (*comebacks, error) {
	b := &comebacks{}
	var err error
	if b.sales, err = salesOf(tx, rows); err != nil {
		return nil, err
	}
	seen := make(map[itemKey]bool)
	for i := range rows {
		order, err := rows[i].order()
		if err != nil {
			continue // whoever goes on with it finds out
		}
		for _, line := range order.Lines {
			seen[itemKey{order.SaleID, line.SKU}] = true
		}
	}
	items, err := l.lockItems(tx, slices.Collect(maps.Keys(seen)))
	if err != nil {
		return nil, err
	}
	b.posting = newPosting(items)
	return b, nil
}

// salesOf reads the sales of some orders, without their items.
func salesOf(tx *gorm.DB, rows []orderRow) (map[string]*sale.Sale, error) {
	ids := make(map[string]bool)
	for i := range rows {
		ids[rows[i].SaleID] = true
	}
	return saleHeaders(tx, slices.Sorted(maps.Keys(ids)))
}

// lockOrder locks an order and, before it, its items.
func (l *Ledger) lockOrder(tx *gorm.DB, orderID string) (*comebacks, *orderRow, error) {
	key := tx.Where("id = ?", orderID).Session(&gorm.Session{})
	row, err := take[orderRow](key)
	if err != nil {
		return nil, nil, err
	}
	b, err := l.lockForComebacks(tx, []orderRow{row})
	if err != nil {
		return nil, nil, err
	}
	row, err = take[orderRow](key.Clauses(clause.Locking{Strength: "UPDATE"}))
	return b, &row, err
}

// giveBack decides one comeback of an order. What was decided before is found,
// and changes nothing.
func (l *Ledger) giveBack(tx *gorm.DB, orderID string, c comeback) (sale.Order, sale.Giveback, error) {
	b, row, err := l.lockOrder(tx, orderID)
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	order, err := row.order()
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	done, err := repeated(tx, &order, c)
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	if done != nil {
		return order, *done, nil
	}
	if !slices.Contains(c.from, order.Status) {
		return sale.Order{}, sale.Giveback{}, c.refused(&order)
	}
	if err := b.comeBack(row, &order, c); err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	return order, b.givebacks[0], l.writeComebacks(tx, b)
}

// repeated returns the giveback of a comeback that is in the ledger.
func repeated(tx *gorm.DB, order *sale.Order, c comeback) (*sale.Giveback, error) {
	skus := make([]string, len(order.Lines))
	for i, line := range order.Lines {
		skus[i] = line.SKU
	}
	flow, err := take[flowRow](tx.Where("sale_id = ? AND sku IN ? AND kind = ? AND ref = ?", order.SaleID, skus, c.kind, c.ref))
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	row, err := take[givebackRow](tx.Where("sale_id = ? AND id = ?", order.SaleID, sale.GivebackID(c.kind, c.ref)))
	if err != nil {
		return nil, fmt.Errorf("giveback of flow %d: %w", flow.Seq, err)
	}
	g, err := row.giveback()
	if err != nil {
		return nil, err
	}
	return &g, c.repeats(order, &flow, &g)
}

// comeBack takes the lines off an order, whose row is locked, and puts them back
// into the stock. After an error nothing has changed.
func (b *comebacks) comeBack(row *orderRow, order *sale.Order, c comeback) error {
	lines, err := c.lines(order)
	if err != nil {
		return err
	}
	after, err := b.without(order, lines)
	if err != nil {
		return err
	}
	items, err := encodeLines(after)
	if err != nil {
		return err
	}
	order.Lines, order.UpdatedAt = after, b.at
	if c.to != "" {
		order.Status, order.Reason = c.to, c.code
	}
	if err := b.tell(c.event, order, c.told); err != nil {
		return err
	}
	row.Status, row.Reason, row.Items, row.UpdatedAt = order.Status, order.Reason, items, order.UpdatedAt
	b.moved = append(b.moved, *row)
	f := flowRow{
		Kind: c.kind, Ref: c.ref, OrderID: order.ID, UserID: order.User,
		Reason: fit(c.reason, sale.MaxReasonLen), Actor: fit(c.actor, maxActor),
	}
	g := sale.Giveback{
		ID: sale.GivebackID(c.kind, c.ref), SaleID: order.SaleID, OrderID: order.ID, User: order.User, Lines: lines,
	}
	b.uncount(b.sales[order.SaleID], order, &g, f)
	b.givebacks = append(b.givebacks, g)
	for _, line := range lines {
		b.move(b.items[itemKey{order.SaleID, line.SKU}], f, func(item *itemRow) { item.Sold -= line.Quantity })
	}
	return nil
}

// without returns the order's lines after some of their units came back.
func (b *comebacks) without(order *sale.Order, lines []sale.Line) ([]sale.OrderLine, error) {
	after := slices.Clone(order.Lines)
	for _, line := range lines {
		i := slices.IndexFunc(after, func(l sale.OrderLine) bool { return l.SKU == line.SKU })
		if i < 0 || b.items[itemKey{order.SaleID, line.SKU}] == nil || b.sales[order.SaleID] == nil {
			return nil, fmt.Errorf("%w: sale %s, SKU %s", ErrUnknownItem, order.SaleID, line.SKU)
		}
		after[i].Returned += line.Quantity
		if after[i].Returned > after[i].Quantity {
			return nil, fmt.Errorf("order %s would get back more of SKU %s than it took", order.ID, line.SKU)
		}
	}
	return after, nil
}

// writeComebacks writes everything.
func (l *Ledger) writeComebacks(tx *gorm.DB, b *comebacks) error {
	if err := l.writePosting(tx, b.posting); err != nil {
		return err
	}
	if err := l.updateOrders(tx, b.moved); err != nil {
		return err
	}
	return l.writeGivebacks(tx, b.givebacks)
}

// updateOrders writes what may change of orders whose rows are locked.
func (l *Ledger) updateOrders(tx *gorm.DB, rows []orderRow) error {
	slices.SortFunc(rows, func(a, b orderRow) int { return strings.Compare(a.ID, b.ID) })
	for chunk := range slices.Chunk(rows, l.cfg.InsertRows) {
		// The rows exist: this is an UPDATE of many rows, each with its own values.
		err := tx.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "id"}},
			DoUpdates: clause.AssignmentColumns([]string{"status", "items", "reason", "late_payment_at", "updated_at"}),
		}).Create(&chunk).Error
		if err != nil {
			return fmt.Errorf("update orders: %w", err)
		}
	}
	return nil
}

// writeGivebacks writes givebacks that are yet to be applied in Redis.
func (l *Ledger) writeGivebacks(tx *gorm.DB, givebacks []sale.Giveback) error {
	rows := make([]givebackRow, len(givebacks))
	for i := range givebacks {
		g := &givebacks[i]
		items, err := encodeLines(g.Lines)
		if err != nil {
			return err
		}
		counts, err := json.Marshal(g.Counts)
		if err != nil {
			return fmt.Errorf("encode counts of giveback %s: %w", g.ID, err)
		}
		rows[i] = givebackRow{
			SaleID: g.SaleID, ID: g.ID, OrderID: g.OrderID, UserID: g.User, Items: items, Counts: string(counts), DecidedAt: now(),
		}
		for _, line := range g.Lines {
			rows[i].Units += line.Quantity
		}
	}
	if err := insert(tx, rows, l.cfg.InsertRows); err != nil {
		return fmt.Errorf("write givebacks: %w", err)
	}
	return nil
}
