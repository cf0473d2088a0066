package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Codes of problems with deliveries.
const (
	CodeDeliveryNotFound = "delivery_not_found"
	CodeOrderEnded       = "order_ended"   // nothing more is sent for an order in this status, in "order_status"
	CodeNoFulfilment     = "no_fulfilment" // the sale names no receiver any more
)

// Deliveries holds the calls of the shops' systems.
type Deliveries interface {
	ListDeliveries(ctx context.Context, saleID string, status ledger.DeliveryStatus, after string, limit int) ([]ledger.Delivery, error)
	GetDelivery(ctx context.Context, orderID string) (ledger.Delivery, error)
	Resend(ctx context.Context, orderID string) (ledger.Delivery, error)
}

// deliveryView names the receiver by its host: the URL, which is the sale's, may
// hold a token.
type deliveryView struct {
	OrderID   string                `json:"order_id"`
	SaleID    string                `json:"sale_id"`
	Host      string                `json:"host"`
	Status    ledger.DeliveryStatus `json:"status"`
	Attempts  int                   `json:"attempts"`
	LastError string                `json:"last_error,omitempty"`
	CreatedAt time.Time             `json:"created_at"`
	NextAt    *time.Time            `json:"next_attempt_at,omitempty"` // of a waiting one
	GiveUpAt  time.Time             `json:"give_up_at"`
	UpdatedAt time.Time             `json:"updated_at"`
}

func viewOfDelivery(d *ledger.Delivery) deliveryView {
	v := deliveryView{
		OrderID: d.OrderID, SaleID: d.SaleID, Host: d.Host, Status: d.Status, Attempts: d.Attempts, LastError: d.LastError,
		CreatedAt: d.CreatedAt.UTC(), GiveUpAt: d.GiveUpAt.UTC(), UpdatedAt: d.UpdatedAt.UTC(),
	}
	if d.Status == ledger.DeliveryWaiting {
		next := d.NextAt.UTC()
		v.NextAt = &next
	}
	return v
}

func (a *API) listDeliveries(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "status", "cursor", "limit")
	status, limit := ledger.DeliveryStatus(q.text("status")), q.limit()
	after := q.textCursor(func(id string) bool { of, _, valid := sale.ParseOrderID(id); return valid && of == s.ID })
	if q.values.Has("status") && !slices.Contains(ledger.DeliveryStatuses, status) {
		q.fail("status", "must be waiting, delivered, failed, parked or dropped")
	}
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListDeliveries(r.Context(), s.ID, status, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(d ledger.Delivery) string { return d.OrderID })
	views := make([]deliveryView, len(page))
	for i := range page {
		views[i] = viewOfDelivery(&page[i])
	}
	return ok(struct {
		Deliveries []deliveryView `json:"deliveries"`
		NextCursor *string        `json:"next_cursor"`
	}{views, next}), nil
}

func (a *API) getDelivery(r *http.Request) (answer, error) {
	_, id, err := orderID(r)
	if err != nil {
		return answer{}, err
	}
	d, err := a.Ledger.GetDelivery(r.Context(), id)
	if err != nil {
		return answer{}, deliveryProblem(err)
	}
	return ok(viewOfDelivery(&d)), nil
}

func (a *API) resendDelivery(r *http.Request) (answer, error) {
	_, id, err := orderID(r)
	if err != nil {
		return answer{}, err
	}
	if err := noBody(r); err != nil {
		return answer{}, err
	}
	d, err := a.Ledger.Resend(r.Context(), id)
	if err != nil {
		return answer{}, deliveryProblem(err)
	}
	return ok(viewOfDelivery(&d)), nil
}

func deliveryProblem(err error) error {
	if state, ok := errors.AsType[*ledger.OrderStatusError](err); ok {
		return web.Conflict(CodeOrderEnded, "nothing is sent for an order that is "+string(state.Status)).
			With("order_status", string(state.Status))
	}
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return web.NewProblem(http.StatusNotFound, CodeDeliveryNotFound, "there is no delivery of such an order")
	case errors.Is(err, ledger.ErrNoFulfilment):
		return web.Conflict(CodeNoFulfilment, "the sale has no fulfilment any more, so nobody to send it to")
	}
	return err
}
