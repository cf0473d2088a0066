package order

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Codes of returns that can't be; those of a deduction and those of an order are alike.
const (
	codeReturnExceeds  = "return_exceeds_order"
	codeReturnIDReused = "return_id_reused"
)

// actorBackend is who the books say returned a deduction.
const actorBackend = "backend"

// Returns is what Quotas needs of the ledger.
type Returns interface {
	Return(ctx context.Context, r ledger.Return) (sale.Order, sale.Giveback, error)
}

// Quotas answers backends that return what they deducted from a quota.
type Quotas struct {
	api     *API
	returns Returns
	keys    []string
}

// NewQuotas returns the API for backends with one of the keys.
func NewQuotas(api *API, returns Returns, keys []string) *Quotas {
	return &Quotas{api: api, returns: returns, keys: keys}
}

// Mount registers the route.
func (q *Quotas) Mount(router *web.Router) {
	router.Handle(Routes[3], web.RequireKeys(q.keys, http.HandlerFunc(q.post)))
}

type quotaReturnBody struct {
	DeductionID string `json:"deduction_id"`
	ReturnID    string `json:"return_id"`
	Quantity    int64  `json:"quantity"`
}

type quotaReturnAnswer struct {
	DeductionID string `json:"deduction_id"`
	ReturnID    string `json:"return_id"`
	Quantity    int64  `json:"quantity"` // units that this return gave back
	Deducted    int64  `json:"deducted"` // units of the deduction
	Returned    int64  `json:"returned"` // of them, by all returns so far
}

func (q *Quotas) post(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if !sale.ValidQuotaKey(key) {
		web.Fail(w, r, web.InvalidField("key", "must be 1 to 57 of A-Z a-z 0-9 _ -"))
		return
	}
	body, problem := web.Decode[quotaReturnBody](r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	if body.Quantity < 1 || body.Quantity > sale.MaxQuantity {
		web.Fail(w, r, web.InvalidField("quantity", fmt.Sprintf("must be 1 to %d", sale.MaxQuantity)))
		return
	}
	answer, err := q.giveBack(r.Context(), key, body)
	if err != nil {
		q.fail(w, r, err)
		return
	}
	web.Write(w, http.StatusOK, answer)
}

// giveBack decides the return in the ledger and then frees the units in Redis. One
// of a deduction whose window is over is noted, and frees nothing: nobody counts that
// window any more.
func (q *Quotas) giveBack(ctx context.Context, key string, body quotaReturnBody) (quotaReturnAnswer, error) {
	if saleID, _, ok := sale.ParseOrderID(body.DeductionID); !ok || saleID != sale.QuotaSaleID(key) {
		return quotaReturnAnswer{}, errNoOrder
	}
	v, err := q.api.await(ctx, sale.QuotaUser, body.DeductionID, q.api.cfg.CancelWait)
	switch {
	case err != nil:
		return quotaReturnAnswer{}, err
	case v.Status == sale.OrderVoid:
		return quotaReturnAnswer{}, errNoOrder
	case !v.written():
		return quotaReturnAnswer{}, web.Unavailable(web.CodeUnavailable, "the deduction is not written yet; try again", retryAfter)
	}
	// The client leaving must not keep the units away from others.
	ctx = context.WithoutCancel(ctx)
	deciding, cancel := context.WithTimeout(ctx, q.api.cfg.LookTimeout)
	defer cancel()
	o, back, err := q.returns.Return(deciding, ledger.Return{
		OrderID: body.DeductionID, ID: body.ReturnID, Actor: actorBackend,
		Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: body.Quantity}},
	})
	if err != nil {
		return quotaReturnAnswer{}, err
	}
	giving, cancel := context.WithTimeout(ctx, q.api.cfg.GivebackTimeout)
	defer cancel()
	if err := q.api.givebacks.Return(giving, back); err != nil {
		// The ledger has decided, so the return has succeeded.
		q.api.log.WarnContext(ctx, "units of a deduction not given back yet, the relay will", "order_id", o.ID, "error", err)
	}
	answer := quotaReturnAnswer{DeductionID: o.ID, ReturnID: body.ReturnID, Quantity: body.Quantity}
	for _, l := range o.Lines {
		answer.Deducted, answer.Returned = answer.Deducted+l.Quantity, answer.Returned+l.Returned
	}
	return answer, nil
}

func (q *Quotas) fail(w http.ResponseWriter, r *http.Request, err error) {
	exceeds, tooMuch := errors.AsType[*ledger.ReturnError](err)
	field, wrong := errors.AsType[*sale.FieldError](err)
	switch {
	case tooMuch:
		web.Fail(w, r, web.Conflict(codeReturnExceeds, fmt.Sprintf("%d units can come back at most", exceeds.Left)).With("left", exceeds.Left))
	case errors.Is(err, ledger.ErrReturnReused):
		web.Fail(w, r, web.Conflict(codeReturnIDReused, "the return_id was used for another return of this deduction"))
	case wrong:
		web.Fail(w, r, web.InvalidField(field.Field, field.Message))
	case errors.Is(err, errNoOrder) || errors.Is(err, ledger.ErrNotFound):
		web.Fail(w, r, web.NotFound("there is no such deduction"))
	default:
		q.api.fail(w, r, err)
	}
}
