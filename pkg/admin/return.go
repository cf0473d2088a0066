package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Codes of returns that can't be.
const (
	CodeReturnExceedsOrder = "return_exceeds_order" // more of an item, named in "sku", than is left of it in the order
	CodeReturnIDReused     = "return_id_reused"     // the return_id was used for another return of the order
)

type returnBody struct {
	ReturnID string       `json:"return_id"`
	Items    []returnLine `json:"items"`
	Reason   string       `json:"reason"`
}

type returnLine struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// returnOrder takes units of a paid order back. Once the ledger has decided, the
// client leaving must not keep the stock away from others.
func (a *API) returnOrder(r *http.Request) (answer, error) {
	saleID, id, err := orderID(r)
	if err != nil {
		return answer{}, err
	}
	body, problem := web.Decode[returnBody](r)
	if problem != nil {
		return answer{}, problem
	}
	if body.Reason != "" && !validReason(body.Reason) {
		return answer{}, web.InvalidField("reason", reasonRange)
	}
	back := ledger.Return{OrderID: id, ID: body.ReturnID, Actor: actor(r), Reason: body.Reason}
	for _, line := range body.Items {
		back.Lines = append(back.Lines, sale.Line{SKU: line.SKU, Quantity: line.Quantity})
	}
	ctx := context.WithoutCancel(r.Context())
	o, giveback, err := a.Ledger.Return(ctx, back)
	exceeds, tooMuch := errors.AsType[*ledger.ReturnError](err)
	switch {
	case tooMuch:
		return answer{}, web.Conflict(CodeReturnExceedsOrder, fmt.Sprintf("%d units of %s can come back at most", exceeds.Left, exceeds.SKU)).
			With("sku", exceeds.SKU).With("left", exceeds.Left)
	case errors.Is(err, ledger.ErrReturnReused):
		return answer{}, web.Conflict(CodeReturnIDReused, "the return_id was used for another return of this order")
	case err != nil:
		return answer{}, a.refusal(ctx, saleID, id, err)
	}
	a.giveBack(ctx, giveback)
	return ok(o), nil
}
