package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// answer is a success.
type answer struct {
	status int
	body   any
}

func ok(body any) answer { return answer{http.StatusOK, body} }

// routes is everything the API serves.
var routes = []struct {
	pattern string
	serve   func(*API, *http.Request) (answer, error)
}{
	{"POST /admin/v1/sales", (*API).createSale},
	{"GET /admin/v1/sales", (*API).listSales},
	{"GET /admin/v1/sales/{sale_id}", (*API).getSale},
	{"PATCH /admin/v1/sales/{sale_id}", (*API).changeSale},
	{"POST /admin/v1/sales/{sale_id}/approve", (*API).approve},
	{"POST /admin/v1/sales/{sale_id}/pause", moveBy(pause)},
	{"POST /admin/v1/sales/{sale_id}/resume", moveBy(resume)},
	{"POST /admin/v1/sales/{sale_id}/end", moveBy(end)},
	{"POST /admin/v1/sales/{sale_id}/items/{sku}/adjust", (*API).adjust},
	{"GET /admin/v1/sales/{sale_id}/flows", (*API).listFlows},
	{"GET /admin/v1/sales/{sale_id}/changes", (*API).listChanges},
	{"GET /admin/v1/sales/{sale_id}/orders", (*API).listOrders},
	{"GET /admin/v1/sales/{sale_id}/dead-letters", (*API).listDeadLetters},
	{"POST /admin/v1/sales/{sale_id}/dead-letters/{order_id}/replay", (*API).replayDeadLetter},
	{"POST /admin/v1/sales/{sale_id}/dead-letters/{order_id}/cancel", (*API).cancelDeadLetter},
	{"GET /admin/v1/sales/{sale_id}/deliveries", (*API).listDeliveries},
	{"POST /admin/v1/sales/{sale_id}/reconcile", (*API).reconcile},
	{"GET /admin/v1/sales/{sale_id}/verify", (*API).verify},
	{"GET /admin/v1/quotas", (*API).listQuotas},
	{"GET /admin/v1/quotas/{key}", (*API).getQuota},
	{"PUT /admin/v1/quotas/{key}", (*API).putQuota},
	{"GET /admin/v1/flow-control", (*API).getFlowControl},
	{"PUT /admin/v1/flow-control", (*API).putFlowControl},
	{"GET /admin/v1/orders/{order_id}", (*API).getOrder},
	{"POST /admin/v1/orders/{order_id}/cancel", (*API).cancelOrder},
	{"POST /admin/v1/orders/{order_id}/pay", (*API).payOrder},
	{"POST /admin/v1/orders/{order_id}/returns", (*API).returnOrder},
	{"GET /admin/v1/orders/{order_id}/delivery", (*API).getDelivery},
	{"POST /admin/v1/orders/{order_id}/delivery/resend", (*API).resendDelivery},
}

// Routes lists the patterns that the API serves.
func Routes() []string {
	patterns := make([]string, len(routes))
	for i, r := range routes {
		patterns[i] = r.pattern
	}
	return patterns
}

// Mount registers the API's routes. Each one asks for a key first.
func (a *API) Mount(router *web.Router) {
	for _, route := range routes {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			done, err := route.serve(a, r)
			if err != nil {
				a.fail(w, r, err)
				return
			}
			web.Write(w, done.status, done.body)
		})
		router.Handle(route.pattern, web.RequireCallers(a.cfg.Callers, handler))
	}
}

// fail answers with the problem in err. What is no problem of the caller's is
// told in the log, once, here.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if problem, ok := errors.AsType[*web.Problem](err); ok {
		web.Fail(w, r, problem)
		return
	}
	if field, ok := errors.AsType[*sale.FieldError](err); ok {
		web.Fail(w, r, web.InvalidField(field.Field, field.Message))
		return
	}
	if state, ok := errors.AsType[*ledger.SaleStatusError](err); ok {
		web.Fail(w, r, wrongState(state.Status, "the sale is "+string(state.Status)))
		return
	}
	if a.Ledger.Permanent(err) {
		web.Failure(w, r, err)
		return
	}
	if r.Context().Err() == nil { // else the client left, which is no news
		a.Log.WarnContext(r.Context(), "admin request not served", "method", r.Method, "route", r.Pattern, "error", err)
	}
	detail := "something that is needed can't be reached; try again"
	if errors.Is(err, context.DeadlineExceeded) {
		detail = "it takes too long; try again"
	}
	web.Fail(w, r, web.Unavailable(web.CodeUnavailable, detail, retryAfter))
}

// noBody refuses a body that says anything.
func noBody(r *http.Request) error {
	if _, _, problem := web.DecodeOptional[struct{}](r); problem != nil {
		return problem
	}
	return nil
}
