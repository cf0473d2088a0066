package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// rowStatuses are those an order in the ledger can have.
var rowStatuses = []sale.OrderStatus{
	sale.OrderPendingPayment, sale.OrderPaid, sale.OrderFulfilled, sale.OrderCancelled, sale.OrderExpired, sale.OrderRejected,
}

func (a *API) listOrders(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "status", "user", "cursor", "limit")
	ask := ledger.OrderQuery{
		SaleID: s.ID, Status: sale.OrderStatus(q.text("status")), User: q.text("user"),
		Limit: q.limit() + 1,
		After: q.textCursor(func(id string) bool { of, _, valid := sale.ParseOrderID(id); return valid && of == s.ID }),
	}
	if q.values.Has("status") && !slices.Contains(rowStatuses, ask.Status) {
		q.fail("status", "must be pending_payment, paid, fulfilled, cancelled, expired or rejected")
	}
	if q.values.Has("user") && !validUser(ask.User) {
		q.fail("user", fmt.Sprintf("must be 1 to %d printable ASCII characters without spaces", sale.MaxUserLen))
	}
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListOrders(r.Context(), ask)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, ask.Limit-1, func(o sale.Order) string { return o.ID })
	return ok(struct {
		Orders     []sale.Order `json:"orders"`
		NextCursor *string      `json:"next_cursor"`
	}{page, next}), nil
}

func validUser(user string) bool {
	strange := func(c rune) bool { return c < '!' || c > '~' }
	return user != "" && len(user) <= sale.MaxUserLen && !strings.ContainsFunc(user, strange)
}

// orderID returns the id in the path. One that can't be an id names no order.
func orderID(r *http.Request) (saleID, id string, err error) {
	id = r.PathValue("order_id")
	saleID, _, valid := sale.ParseOrderID(id)
	if !valid {
		return "", "", orderNotFound()
	}
	return saleID, id, nil
}

func (a *API) getOrder(r *http.Request) (answer, error) {
	saleID, id, err := orderID(r)
	if err != nil {
		return answer{}, err
	}
	o, err := a.Ledger.GetOrder(r.Context(), id)
	if errors.Is(err, ledger.ErrNotFound) {
		o, err = a.unwritten(r.Context(), saleID, id)
	}
	return ok(o), err
}

// unwritten tells of an order from its grant in Redis: it may have no row yet.
func (a *API) unwritten(ctx context.Context, saleID, id string) (sale.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StateTimeout)
	defer cancel()
	found, granted, err := a.Stock.Find(ctx, saleID, id)
	if refused, ok := errors.AsType[*stock.NotLoaded](err); ok {
		// The restore may bring it to light.
		if _, err := a.Ledger.GetSale(ctx, saleID); err != nil {
			return sale.Order{}, noOrder(err)
		}
		return sale.Order{}, web.Unavailable(web.CodeNotLoaded, "the sale is not loaded: "+refused.Reason, retryAfter)
	}
	if err != nil {
		return sale.Order{}, err
	}
	if !granted {
		return sale.Order{}, orderNotFound()
	}
	g, _, err := sale.DecodeGrant(found.Record)
	if err != nil {
		return sale.Order{}, fmt.Errorf("grant of order %s: %w", id, err)
	}
	if g.Kind != sale.GrantGrab {
		return sale.Order{}, orderNotFound()
	}
	o := sale.Order{
		ID: id, SaleID: saleID, User: g.User, Status: sale.OrderPending,
		CreatedAt: g.At, UpdatedAt: g.At, ExpiresAt: g.ExpiresAt, Lines: make([]sale.OrderLine, len(g.Lines)),
	}
	for i, l := range g.Lines {
		o.Lines[i].Line = l
	}
	if found.Durable {
		o.Status = sale.OrderProcessing
	}
	return o, nil
}

// noOrder turns the ledger's "not found" into the caller's.
func noOrder(err error) error {
	if errors.Is(err, ledger.ErrNotFound) {
		return orderNotFound()
	}
	return err
}

// because is the optional body of a decision.
type because struct {
	Reason string `json:"reason"`
}

func readBecause(r *http.Request) (because, error) {
	why, _, problem := web.DecodeOptional[because](r)
	if problem != nil {
		return why, problem
	}
	if why.Reason != "" && !validReason(why.Reason) {
		return why, web.InvalidField("reason", reasonRange)
	}
	return why, nil
}

// cancelOrder decides in the ledger and then gives the stock back. Once the
// ledger has decided, the client leaving must not keep the stock away from others.
func (a *API) cancelOrder(r *http.Request) (answer, error) {
	saleID, id, err := orderID(r)
	if err != nil {
		return answer{}, err
	}
	why, err := readBecause(r)
	if err != nil {
		return answer{}, err
	}
	ctx := context.WithoutCancel(r.Context())
	o, giveback, err := a.Ledger.Cancel(ctx, id, actor(r), why.Reason)
	if state, ok := errors.AsType[*ledger.OrderStatusError](err); ok {
		return answer{}, web.Conflict(web.CodeOrderNotCancellable, "an order that is "+string(state.Status)+" can't be cancelled").
			With("order_status", string(state.Status))
	}
	if err != nil {
		return answer{}, a.refusal(ctx, saleID, id, err)
	}
	a.giveBack(ctx, giveback)
	return ok(o), nil
}

// giveBack brings a decided giveback into Redis. When that fails the relay of
// the reconcilers does it.
func (a *API) giveBack(ctx context.Context, g sale.Giveback) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.GivebackTimeout)
	defer cancel()
	if err := a.Givebacks.Return(ctx, g); err != nil {
		a.Log.WarnContext(ctx, "stock not given back yet, the relay will", "sale_id", g.SaleID, "giveback", g.ID, "error", err)
	}
}
