package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// saleChange is the body of PATCH /admin/v1/sales/{sale_id}; what is absent
// stays as it is. Once a sale is approved its limits stay the same ones: of each only
// the maximum can change.
type saleChange struct {
	Name          *string         `json:"name"`
	StartsAt      *string         `json:"starts_at"`
	EndsAt        *string         `json:"ends_at"`
	PaymentWindow *string         `json:"payment_window"`
	PerUserLimit  *int64          `json:"per_user_limit"`
	Timezone      *string         `json:"timezone"`
	Items         []itemDraft     `json:"items"`
	Limits        []limitDraft    `json:"limits"`
	RateLimit     *int64          `json:"rate_limit"`
	Regrab        *bool           `json:"regrab_after_cancel"`
	Fulfilment    json.RawMessage `json:"fulfilment"` // null ends it
	Reason        string          `json:"reason"`     // kept in the sale's history
}

// ofDraft reports whether only a draft can be changed so: grants rely on the
// items, and what is counted relies on the time zone.
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
		PerUserLimit: c.PerUserLimit, Timezone: c.Timezone, Limits: c.Limits, RateLimit: c.RateLimit, Regrab: c.Regrab,
		Fulfilment: c.Fulfilment,
	}
}

// fulfilmentOnly reports whether nothing but the fulfilment changes: orders are sent
// long after a sale has ended.
func (c *saleChange) fulfilmentOnly() bool {
	rest := *c
	rest.Fulfilment, rest.Reason = nil, ""
	return c.Fulfilment != nil && reflect.DeepEqual(rest, saleChange{})
}

// apply changes the sale, which must then still be valid.
func (c *saleChange) apply(s *sale.Sale) error {
	field, draftOnly := c.ofDraft()
	switch {
	case s.Status == sale.StatusEnded && !c.fulfilmentOnly():
		return wrongState(s.Status, "a sale that has ended can't be changed")
	case draftOnly && s.Status != sale.StatusDraft:
		return draftOnlyField(s.Status, field, "only a draft can change its "+field)
	}
	before := s.Limits
	rules := c.rules()
	if err := rules.apply(s); err != nil {
		return err
	}
	if c.Items != nil {
		var err error
		if s.Items, err = items(c.Items); err != nil {
			return err
		}
	}
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Status != sale.StatusDraft && !sameLimits(before, s.Limits) {
		return draftOnlyField(s.Status, "limits",
			"only a draft can get or lose limits; once a sale is approved, give all of its limits, each with its maximum")
	}
	return nil
}

// draftOnlyField refuses a change that is possible before approval only.
func draftOnlyField(present sale.Status, field, detail string) *web.Problem {
	p := web.Conflict(CodeSaleNotDraft, detail).With("sale_status", string(present))
	p.Field = field
	return p
}

// sameLimits reports whether both have limits of the same names, and gives those
// of after the order of before: whichever refuses first is named.
func sameLimits(before, after []sale.Limit) bool {
	if len(before) != len(after) {
		return false
	}
	for i, l := range before {
		at := slices.IndexFunc(after, func(other sale.Limit) bool { return other.Name() == l.Name() })
		if at < 0 {
			return false
		}
		after[i], after[at] = after[at], after[i]
	}
	return true
}

func (a *API) changeSale(r *http.Request) (answer, error) {
	before, err := a.ordinarySale(r)
	if err != nil {
		return answer{}, err
	}
	change, problem := web.Decode[saleChange](r)
	if problem != nil {
		return answer{}, problem
	}
	if change.Reason != "" && !validReason(change.Reason) {
		return answer{}, web.InvalidField("reason", reasonRange)
	}
	// The client leaving must not keep the catalogue behind the ledger.
	ctx := context.WithoutCancel(r.Context())
	var s sale.Sale
	if before.Status == sale.StatusDraft {
		s, err = a.Ledger.EditDraft(ctx, before.ID, change.apply)
	} else {
		s, err = a.Ledger.EditSale(ctx, before.ID, ledger.Cause{Actor: actor(r), Reason: change.Reason}, change.apply)
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
