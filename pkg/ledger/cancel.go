package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Cancel ends an order that waits for its payment and decides that its stock
// comes back. The giveback is to be applied in Redis. The same actor may cancel
// again: nothing changes, the answer is the same. It answers ErrNotFound, and
// *OrderStatusError when the order's status does not allow it.
func (l *Ledger) Cancel(ctx context.Context, orderID, actor, reason string) (sale.Order, sale.Giveback, error) {
	return l.comeBack(ctx, cancellation(orderID, actor, reason))
}

func cancellation(orderID, actor, reason string) comeback {
	return comeback{
		kind: sale.FlowCancel, orderID: orderID, ref: orderID, actor: actor, reason: reason,
		from: []sale.OrderStatus{sale.OrderPendingPayment}, to: sale.OrderCancelled, lines: held,
	}
}

// comeback is one way in which stock of an order comes back.
type comeback struct {
	kind          sale.FlowKind
	orderID       string
	ref           string // with kind, names this comeback in its sale
	actor, reason string
	from          []sale.OrderStatus // those that allow it
	to            sale.OrderStatus   // what the order becomes
	// lines says what comes back of the order.
	lines func(*sale.Order) ([]sale.Line, error)
}

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

func (l *Ledger) comeBack(ctx context.Context, c comeback) (order sale.Order, giveback sale.Giveback, err error) {
	err = l.change(ctx, fmt.Sprintf("%s order %s", c.kind, c.orderID), func(tx *gorm.DB) error {
		var err error
		order, giveback, err = l.giveBack(tx, c)
		return err
	})
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	return order, giveback, nil
}

// giveBack moves the order on and writes the flows and the giveback. When the
// same actor did it before, it returns what came of it.
func (l *Ledger) giveBack(tx *gorm.DB, c comeback) (sale.Order, sale.Giveback, error) {
	p, order, err := l.lockOrder(tx, c.orderID)
	if err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	done, err := repeated(tx, &order, c)
	if err != nil || done != nil {
		return order, orZero(done), err
	}
	if !slices.Contains(c.from, order.Status) {
		return sale.Order{}, sale.Giveback{}, &OrderStatusError{OrderID: order.ID, Status: order.Status}
	}
	giveback := sale.Giveback{ID: sale.GivebackID(c.kind, c.ref), SaleID: order.SaleID, OrderID: order.ID, User: order.User}
	if giveback.Lines, err = c.lines(&order); err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	order.Status, order.UpdatedAt = c.to, p.at
	if err := p.comeBack(&order, giveback.Lines, c); err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	if err := l.writePosting(tx, p); err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	if err := updateOrder(tx, &order); err != nil {
		return sale.Order{}, sale.Giveback{}, err
	}
	return order, giveback, writeGiveback(tx, giveback)
}

// lockOrder locks an order and, before it, its items.
func (l *Ledger) lockOrder(tx *gorm.DB, orderID string) (*posting, sale.Order, error) {
	key := tx.Where("id = ?", orderID).Session(&gorm.Session{})
	row, err := take[orderRow](key)
	if err != nil {
		return nil, sale.Order{}, err
	}
	order, err := row.order()
	if err != nil {
		return nil, sale.Order{}, err
	}
	keys := make([]itemKey, len(order.Lines)) // An order's SKUs never change.
	for i, line := range order.Lines {
		keys[i] = itemKey{order.SaleID, line.SKU}
	}
	items, err := l.lockItems(tx, keys)
	if err != nil {
		return nil, sale.Order{}, err
	}
	if row, err = take[orderRow](key.Clauses(clause.Locking{Strength: "UPDATE"})); err != nil {
		return nil, sale.Order{}, err
	}
	order, err = row.order()
	return newPosting(items), order, err
}

// repeated returns the giveback when this very comeback is in the ledger.
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
	case flow.OrderID != order.ID || flow.Actor != fit(c.actor, maxActor):
		return nil, &OrderStatusError{OrderID: order.ID, Status: order.Status}
	}
	row, err := take[givebackRow](tx.Where("sale_id = ? AND id = ?", order.SaleID, sale.GivebackID(c.kind, c.ref)))
	if err != nil {
		return nil, fmt.Errorf("giveback of flow %d: %w", flow.Seq, err)
	}
	g, err := row.giveback()
	return &g, err
}

// comeBack takes the lines off the order and puts them back into the stock.
func (p *posting) comeBack(order *sale.Order, lines []sale.Line, c comeback) error {
	for _, line := range lines {
		i := slices.IndexFunc(order.Lines, func(l sale.OrderLine) bool { return l.SKU == line.SKU })
		item := p.items[itemKey{order.SaleID, line.SKU}]
		if i < 0 || item == nil {
			return fmt.Errorf("%w: sale %s, SKU %s", ErrUnknownItem, order.SaleID, line.SKU)
		}
		order.Lines[i].Returned += line.Quantity
		if order.Lines[i].Returned > order.Lines[i].Quantity {
			return fmt.Errorf("order %s would get back more of SKU %s than it took", order.ID, line.SKU)
		}
		f := flowRow{
			Kind: c.kind, Ref: c.ref, OrderID: order.ID, UserID: order.User,
			Reason: fit(c.reason, sale.MaxReasonLen), Actor: fit(c.actor, maxActor),
		}
		p.move(item, f, func(item *itemRow) { item.Sold -= line.Quantity })
	}
	return nil
}

func updateOrder(tx *gorm.DB, o *sale.Order) error {
	items, err := json.Marshal(o.Lines)
	if err != nil {
		return fmt.Errorf("encode order %s: %w", o.ID, err)
	}
	err = tx.Model(&orderRow{}).Where("id = ?", o.ID).
		UpdateColumns(map[string]any{"status": o.Status, "items": string(items), "updated_at": o.UpdatedAt}).Error
	if err != nil {
		return fmt.Errorf("update order %s: %w", o.ID, err)
	}
	return nil
}

func orZero(g *sale.Giveback) sale.Giveback {
	if g == nil {
		return sale.Giveback{}
	}
	return *g
}
