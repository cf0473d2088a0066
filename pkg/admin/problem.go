package admin

import (
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Codes of problems that only the control plane has; see pkg/web for the others.
const (
	CodeSaleNotFound       = "sale_not_found"
	CodeItemNotFound       = "item_not_found"
	CodeOrderNotFound      = "order_not_found"
	CodeDeadLetterNotFound = "dead_letter_not_found"
	CodeSaleExists         = "sale_exists"        // the id is taken
	CodeSaleState          = "sale_state"         // the sale's status, in "sale_status", does not allow the change
	CodeSaleNotDraft       = "sale_not_draft"     // the change is possible before approval only
	CodeStockUnlimited     = "stock_unlimited"    // unlimited stock can't be changed by a number of units
	CodeStockLimited       = "stock_limited"      // limited stock is changed by a number of units
	CodeDeadLetterState    = "dead_letter_state"  // the dead letter was dealt with the other way
	CodeDeadLetterPoison   = "dead_letter_poison" // the dead letter still can't be written
)

// retryAfter is what callers hear when they should come again.
const retryAfter = time.Second

func saleNotFound() *web.Problem {
	return web.NewProblem(http.StatusNotFound, CodeSaleNotFound, "there is no such sale")
}

func orderNotFound() *web.Problem {
	return web.NewProblem(http.StatusNotFound, CodeOrderNotFound, "there is no such order")
}

func itemNotFound() *web.Problem {
	p := web.NewProblem(http.StatusNotFound, CodeItemNotFound, "the sale has no such item")
	p.Field = "sku"
	return p
}

// wrongState is a change that a sale's status does not allow.
func wrongState(present sale.Status, detail string) *web.Problem {
	return web.Conflict(CodeSaleState, detail).With("sale_status", string(present))
}

func stockUnlimited() *web.Problem {
	return web.Conflict(CodeStockUnlimited, "the stock of this item is unlimited; give it a bound by its stock, not by a delta")
}

func stockLimited() *web.Problem {
	return web.Conflict(CodeStockLimited, "the stock of this item is limited; change it by a delta")
}

func deadLetterNotFound() *web.Problem {
	return web.NewProblem(http.StatusNotFound, CodeDeadLetterNotFound, "there is no such dead letter")
}
