package admin

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// What a draft gets when its request leaves a field out.
const (
	defaultPaymentWindow = 20 * time.Minute
	defaultPerUserLimit  = 1
	defaultTimezone      = "UTC"
)

// Years a sale may begin in: both ledgers can keep them, and a slip of the pen is noticed.
const (
	firstYear = 2000
	lastYear  = 2199
)

// generatedIDLen is the length of an id made here: 50 random bits, short enough to be typed.
const generatedIDLen = 10

// saleDraft is the body of POST /admin/v1/sales. Pointers tell what is absent
// from what is zero.
type saleDraft struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	StartsAt      *string         `json:"starts_at"`
	EndsAt        *string         `json:"ends_at"`
	PaymentWindow *string         `json:"payment_window"`
	PerUserLimit  *int64          `json:"per_user_limit"`
	Timezone      *string         `json:"timezone"`
	Items         []itemDraft     `json:"items"`
	Limits        []limitDraft    `json:"limits"`
	RateLimit     *int64          `json:"rate_limit"`
	Regrab        *bool           `json:"regrab_after_cancel"`
	Fulfilment    json.RawMessage `json:"fulfilment"`
}

type itemDraft struct {
	SKU        string `json:"sku"`
	Stock      *int64 `json:"stock"`
	PriceCents int64  `json:"price_cents"`
}

type limitDraft struct {
	Scope  sale.LimitScope  `json:"scope"`
	Window sale.LimitWindow `json:"window"`
	Max    *int64           `json:"max"`
}

// sale returns the draft as a sale, or a *sale.FieldError for the first field that is wrong.
func (d *saleDraft) sale() (*sale.Sale, error) {
	s := &sale.Sale{
		ID:            cmp.Or(d.ID, newSaleID()),
		Name:          d.Name,
		Status:        sale.StatusDraft,
		PaymentWindow: sale.Duration(defaultPaymentWindow),
		PerUserLimit:  defaultPerUserLimit,
		Timezone:      defaultTimezone,
	}
	if d.StartsAt == nil {
		return nil, &sale.FieldError{Field: "starts_at", Message: "is required, RFC 3339"}
	}
	if d.EndsAt == nil {
		return nil, &sale.FieldError{Field: "ends_at", Message: "is required, RFC 3339"}
	}
	rules := saleRules{
		StartsAt: d.StartsAt, EndsAt: d.EndsAt, PaymentWindow: d.PaymentWindow,
		PerUserLimit: d.PerUserLimit, Timezone: d.Timezone, Limits: d.Limits, RateLimit: d.RateLimit, Regrab: d.Regrab,
		Fulfilment: d.Fulfilment,
	}
	if err := rules.apply(s); err != nil {
		return nil, err
	}
	var err error
	if s.Items, err = items(d.Items); err != nil {
		return nil, err
	}
	return s, s.Validate()
}

// items turns the items of a request into those of a sale.
func items(drafts []itemDraft) ([]sale.Item, error) {
	out := make([]sale.Item, len(drafts))
	for i, it := range drafts {
		if it.Stock == nil {
			return nil, &sale.FieldError{
				Field:   fmt.Sprintf("items[%d].stock", i),
				Message: fmt.Sprintf("is required: -1 (unlimited) or 0 to %d", sale.MaxStock),
			}
		}
		out[i] = sale.Item{SKU: it.SKU, Stock: *it.Stock, PriceCents: it.PriceCents}
	}
	return out, nil
}

// limits turns the limits of a request into those of a sale.
func limits(drafts []limitDraft) ([]sale.Limit, error) {
	var out []sale.Limit // nil for none, as the ledger reads it back
	for i, l := range drafts {
		if l.Max == nil {
			return nil, &sale.FieldError{
				Field:   fmt.Sprintf("limits[%d].max", i),
				Message: fmt.Sprintf("is required: 0 to %d units", sale.MaxLimit),
			}
		}
		out = append(out, sale.Limit{Scope: l.Scope, Window: l.Window, Max: *l.Max})
	}
	return out, nil
}

// saleRules are the fields that a draft sets and a change may set again; nil
// leaves one as it is.
type saleRules struct {
	Name          *string
	StartsAt      *string
	EndsAt        *string
	PaymentWindow *string
	PerUserLimit  *int64
	Timezone      *string
	Limits        []limitDraft
	RateLimit     *int64
	Regrab        *bool
	Fulfilment    json.RawMessage // null is none
}

// apply sets what is given. It checks the form of the values; their ranges are
// those of sale.Validate.
func (r *saleRules) apply(s *sale.Sale) error {
	if r.Name != nil {
		s.Name = *r.Name
	}
	if r.StartsAt != nil {
		at, err := parseTime("starts_at", *r.StartsAt)
		if err != nil {
			return err
		}
		s.StartsAt = at
	}
	if r.EndsAt != nil {
		at, err := parseTime("ends_at", *r.EndsAt)
		if err != nil {
			return err
		}
		s.EndsAt = at
	}
	if r.PaymentWindow != nil {
		window, err := time.ParseDuration(*r.PaymentWindow)
		if err != nil {
			return &sale.FieldError{
				Field:   "payment_window",
				Message: fmt.Sprintf("must be a duration such as 20m, from 1s to %s", sale.MaxPaymentWindow),
			}
		}
		s.PaymentWindow = sale.Duration(window.Truncate(time.Millisecond))
	}
	if r.PerUserLimit != nil {
		s.PerUserLimit = *r.PerUserLimit
	}
	if r.Timezone != nil {
		s.Timezone = *r.Timezone
	}
	if r.RateLimit != nil {
		s.RateLimit = *r.RateLimit
	}
	if r.Regrab != nil {
		s.NoRegrab = !*r.Regrab
	}
	var err error
	if r.Fulfilment != nil {
		if s.Fulfilment, err = fulfilment(r.Fulfilment); err != nil {
			return err
		}
	}
	if r.Limits == nil {
		return nil
	}
	s.Limits, err = limits(r.Limits)
	return err
}

// parseTime reads a time to the millisecond, which is what the ledger keeps.
func parseTime(field, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &sale.FieldError{Field: field, Message: "must be an RFC 3339 time such as 2026-11-27T09:00:00Z"}
	}
	at = at.UTC().Truncate(time.Millisecond)
	if at.Year() < firstYear || at.Year() > lastYear {
		return time.Time{}, &sale.FieldError{Field: field, Message: fmt.Sprintf("must lie in the years %d to %d", firstYear, lastYear)}
	}
	return at, nil
}

// newSaleID makes an id up.
func newSaleID() string { return strings.ToLower(rand.Text()[:generatedIDLen]) }
