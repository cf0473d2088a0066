package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// errNoOrder says that there is no such order for this user.
var errNoOrder = errors.New("no such order")

// View is an order as its owner sees it. One that has no row in the ledger
// yet is told from its grant in Redis; a void one never had any content.
type View struct {
	OrderID   string           `json:"order_id"`
	SaleID    string           `json:"sale_id"`
	User      string           `json:"user"`
	Status    sale.OrderStatus `json:"status"`
	Items     []sale.OrderLine `json:"items"`
	CreatedAt time.Time        `json:"created_at,omitzero"`
	UpdatedAt time.Time        `json:"updated_at,omitzero"`
	ExpiresAt time.Time        `json:"expires_at,omitzero"`
	Reason    string           `json:"reason,omitempty"` // why it ended; see sale.Order
}

// written reports whether the order has its row, or never will.
func (v *View) written() bool {
	return v.Status != sale.OrderPending && v.Status != sale.OrderProcessing
}

// resolver tells where an order stands.
type resolver struct {
	ledger Orders
	stock  Stock
}

// resolve looks an order up for a user. An order of somebody else and an id
// that can't be one are errNoOrder; any other error is a store that can't be
// asked.
//
// A grant is in Redis before it is in the stream, and in the stream before it
// is in the ledger. So the ledger is asked first, Redis next, and an order that
// neither has is looked for once more in the ledger: its row may have come
// between, after Redis was asked too early.
func (r *resolver) resolve(ctx context.Context, user, orderID string) (View, error) {
	saleID, owner, ok := sale.ParseOrderID(orderID)
	if !ok || owner != sale.OwnerTag(user) {
		return View{}, errNoOrder
	}
	v, err := r.row(ctx, user, orderID)
	if !errors.Is(err, errNoRow) {
		return v, err
	}
	v, err = r.grant(ctx, user, saleID, orderID)
	if !errors.Is(err, errNoGrant) {
		return v, err
	}
	v, err = r.row(ctx, user, orderID)
	if !errors.Is(err, errNoRow) {
		return v, err
	}
	return r.absent(ctx, user, saleID, orderID)
}

// errNoRow and errNoGrant lead from one place to look to the next.
var (
	errNoRow   = errors.New("the ledger has no row of the order")
	errNoGrant = errors.New("redis has no grant of the order")
)

// row looks in the ledger.
func (r *resolver) row(ctx context.Context, user, orderID string) (View, error) {
	o, err := r.ledger.GetOrder(ctx, orderID)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return View{}, errNoRow
	case err != nil:
		return View{}, fmt.Errorf("look order %s up: %w", orderID, err)
	case o.User != user:
		return View{}, errNoOrder
	}
	return viewOf(o), nil
}

func viewOf(o sale.Order) View {
	return View{
		OrderID: o.ID, SaleID: o.SaleID, User: o.User, Status: o.Status, Items: o.Lines,
		CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt, ExpiresAt: o.ExpiresAt, Reason: o.Reason,
	}
}

// grant looks in Redis. Without a trusted state there the order is pending: the
// restore will know.
func (r *resolver) grant(ctx context.Context, user, saleID, orderID string) (View, error) {
	v := View{OrderID: orderID, SaleID: saleID, User: user, Status: sale.OrderPending, Items: []sale.OrderLine{}}
	found, ok, err := r.stock.Find(ctx, saleID, orderID)
	if notLoaded(err) {
		return r.unloaded(ctx, v)
	}
	if err != nil {
		return View{}, fmt.Errorf("look the grant of order %s up: %w", orderID, err)
	}
	if !ok {
		return View{}, errNoGrant
	}
	g, _, err := sale.DecodeGrant(found.Record)
	if err != nil {
		return View{}, fmt.Errorf("grant of order %s in redis: %w", orderID, err)
	}
	if g.User != user {
		return View{}, errNoOrder
	}
	if found.Durable {
		v.Status = sale.OrderProcessing
	}
	for _, l := range g.Lines {
		v.Items = append(v.Items, sale.OrderLine{Line: l})
	}
	v.CreatedAt, v.UpdatedAt, v.ExpiresAt = g.At, g.At, g.ExpiresAt
	return v, nil
}

// unloaded answers for a sale that has no state in Redis. One that does not
// exist at all will never have any.
func (r *resolver) unloaded(ctx context.Context, pending View) (View, error) {
	_, err := r.ledger.GetSale(ctx, pending.SaleID)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return View{}, errNoOrder
	case err != nil:
		return View{}, fmt.Errorf("look the sale of order %s up: %w", pending.OrderID, err)
	}
	return pending, nil
}

// absent answers for an order that neither the ledger nor Redis has. Its id was
// made for this user, so it is void: it was fenced out, or never won. Because
// void is final, the sale must have been in one and the same loaded state
// before and after the last look: a loss in between would hide any grant.
func (r *resolver) absent(ctx context.Context, user, saleID, orderID string) (View, error) {
	before, err := r.stock.State(ctx, saleID, nil)
	if err == nil {
		var v View
		if v, err = r.grant(ctx, user, saleID, orderID); !errors.Is(err, errNoGrant) {
			return v, err
		}
		var after stock.State
		after, err = r.stock.State(ctx, saleID, nil)
		if err == nil && after.Generation == before.Generation {
			return View{OrderID: orderID, SaleID: saleID, User: user, Status: sale.OrderVoid, Items: []sale.OrderLine{}}, nil
		}
	}
	if err != nil && !notLoaded(err) {
		return View{}, fmt.Errorf("look the state of sale %s up: %w", saleID, err)
	}
	return View{OrderID: orderID, SaleID: saleID, User: user, Status: sale.OrderPending, Items: []sale.OrderLine{}}, nil
}

func notLoaded(err error) bool {
	_, ok := errors.AsType[*stock.NotLoaded](err)
	return ok
}
