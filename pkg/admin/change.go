package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// saleChange is the body of PATCH /admin/v1/sales/{sale_id}; what is absent
// stays as it is.
type saleChange struct {
	Name          *string     `json:"name"`
	StartsAt      *string     `json:"starts_at"`
	EndsAt        *string     `json:"ends_at"`
	PaymentWindow *string     `json:"payment_window"`
	PerUserLimit  *int64      `json:"per_user_limit"`
	Timezone      *string     `json:"timezone"`
	Items         []itemDraft `json:"items"`
	Reason        string      `json:"reason"` // kept in the sale's history
}

// ofDraft reports whether only a draft can be changed so: grants rely on the
// items, and limits may rely on the time zone.
func (c *saleChange) ofDraft() (field string, yes bool) {
	switch {
	case c.Items != nil:
		return "items", true
	case c.Timezone != nil:
		return "timezone", true
	}
	return "", false
}

func (c *saleChange) rules() saleRules {
	return saleRules{
		Name: c.Name, StartsAt: c.StartsAt, EndsAt: c.EndsAt, PaymentWindow: c.PaymentWindow,
		PerUserLimit: c.PerUserLimit, Timezone: c.Timezone,
	}
}

// apply changes the sale, which must then still be valid.
func (c *saleChange) apply(s *sale.Sale) error {
	field, draftOnly := c.ofDraft()
	switch {
	case s.Status == sale.StatusEnded:
		return wrongState(s.Status, "a sale that has ended can't be changed")
	case draftOnly && s.Status != sale.StatusDraft:
		p := web.Conflict(CodeSaleNotDraft, "only a draft can change its "+field).With("sale_status", string(s.Status))
		p.Field = field
		return p
	}
	before := s.PerUserLimit
	rules := c.rules()
	if err := rules.apply(s); err != nil {
		return err
	}
	if s.Status != sale.StatusDraft && lowered(before, s.PerUserLimit) {
		return web.InvalidField("per_user_limit", fmt.Sprintf("can only be raised once a sale is approved: it is %d", before))
	}
	if c.Items != nil {
		var err error
		if s.Items, err = items(c.Items); err != nil {
			return err
		}
	}
	return s.Validate()
}

// lowered reports whether a limit became stricter; 0 is none. Users may hold as
// much as the old one allowed, which verification would then call a violation.
func lowered(from, to int64) bool {
	return to != 0 && (from == 0 || to < from)
}

func (a *API) changeSale(r *http.Request) (answer, error) {
	before, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	change, problem := web.Decode[saleChange](r)
	if problem != nil {
		return answer{}, problem
	}
	// The client leaving must not keep the catalogue behind the ledger.
	ctx := context.WithoutCancel(r.Context())
	var s sale.Sale
	if before.Status == sale.StatusDraft {
		s, err = a.Ledger.EditDraft(ctx, before.ID, change.apply)
	} else {
		s, err = a.Ledger.EditSale(ctx, before.ID, ledger.Cause{Actor: actor, Reason: change.Reason}, change.apply)
	}
	if err != nil {
		return answer{}, noSale(err)
	}
	if err := a.publish(ctx, s); err != nil {
		return answer{}, err
	}
	view, err := a.view(ctx, s)
	return ok(view), err
}
