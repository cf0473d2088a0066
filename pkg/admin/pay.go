package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Codes of an order whose status, in "order_status", does not allow the change.
const (
	CodeOrderExpired   = "order_expired"   // it was not paid in time
	CodeOrderCancelled = "order_cancelled" // it was cancelled
	CodeOrderRejected  = "order_rejected"  // it was refused, or could not be fulfilled
	CodeOrderNotPaid   = "order_not_paid"  // it waits for its payment: cancel it instead
)

// payOrder marks an order as paid. That a payment came too late is in the books too:
// the shop hears it as an event, and has to refund.
func (a *API) payOrder(r *http.Request) (answer, error) {
	saleID, id, err := orderID(r)
	if err != nil {
		return answer{}, err
	}
	if err := noBody(r); err != nil {
		return answer{}, err
	}
	o, err := a.Ledger.Pay(r.Context(), id)
	if err != nil {
		return answer{}, tooLate(a.refusal(r.Context(), saleID, id, err), err)
	}
	return ok(o), nil
}

// tooLate adds to the refusal of a payment what became of the payment, when the
// order had ended.
func tooLate(refusal, err error) error {
	problem, known := errors.AsType[*web.Problem](refusal)
	if _, ended := errors.AsType[*ledger.OrderStatusError](err); known && ended {
		problem.Detail += "; a late payment is noted and has to be refunded"
	}
	return refusal
}

// refusal says why an order can't be changed. One that is not in the ledger may be
// on its way there.
func (a *API) refusal(ctx context.Context, saleID, id string, err error) error {
	if errors.Is(err, ledger.ErrNotFound) {
		o, err := a.unwritten(ctx, saleID, id)
		if err != nil {
			return err
		}
		return web.Conflict(web.CodeOrderProcessing, "the order is not written yet; try again").
			With("order_status", string(o.Status)).WithRetryAfter(retryAfter)
	}
	state, wrong := errors.AsType[*ledger.OrderStatusError](err)
	if !wrong {
		return err
	}
	code, detail := CodeOrderRejected, "the order was rejected"
	switch state.Status {
	case sale.OrderExpired:
		code, detail = CodeOrderExpired, "the order was not paid in time and has expired"
	case sale.OrderCancelled:
		code, detail = CodeOrderCancelled, "the order was cancelled"
	case sale.OrderPendingPayment:
		code, detail = CodeOrderNotPaid, "the order is not paid; cancel it instead"
	}
	return web.Conflict(code, detail).With("order_status", string(state.Status))
}
