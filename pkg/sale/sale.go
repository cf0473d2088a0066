// Package sale holds the words every other package shares: Sale, Item, Grant,
// Order, Flow, Outcome, and the codec of a batch of grants. It depends on the
// standard library only and does no I/O.
//
// A sale moves through these states:
//
//	draft --approve--> approved --end--> ended
//	                    |    ^
//	                  pause  resume
//	                    v    |
//	                    paused --end--> ended
//
// An approved sale is open by its clock: between StartsAt (inclusive) and
// EndsAt (exclusive). Phase tells what a client may expect right now.
package sale

import (
	"slices"
	"time"
)

// Unlimited is the stock of an item that never sells out.
const Unlimited int64 = -1

// Status is the stored state of a sale; see the package comment.
type Status string

// The states of a sale.
const (
	StatusDraft    Status = "draft"
	StatusApproved Status = "approved"
	StatusPaused   Status = "paused"
	StatusEnded    Status = "ended"
)

// Phase is what Status and the clock make of a sale together.
type Phase string

// The phases of a sale, as clients see them.
const (
	PhaseDraft     Phase = "draft"
	PhaseScheduled Phase = "scheduled" // approved, before StartsAt
	PhaseOpen      Phase = "open"
	PhasePaused    Phase = "paused"
	PhaseEnded     Phase = "ended" // ended by hand or by its clock
)

// Sale is one promotion: a window, rules, and one or more items.
type Sale struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Status        Status    `json:"status"`
	StartsAt      time.Time `json:"starts_at"`
	EndsAt        time.Time `json:"ends_at"`
	PaymentWindow Duration  `json:"payment_window"`
	// PerUserLimit is the most units one user may hold in this sale; 0 is no limit.
	PerUserLimit int64  `json:"per_user_limit"`
	Timezone     string `json:"timezone"`
	Items        []Item `json:"items"`
	Rules
	// Revision grows by one with every stored change; the catalogue keeps the
	// highest it has seen.
	Revision int64 `json:"revision"`
}

// Rules are what a sale demands beyond its window, its stock and the units per
// user. The ledger keeps them as one JSON text.
type Rules struct {
	// Limits hold all at once, together with PerUserLimit and the stock.
	Limits []Limit `json:"limits,omitempty"`
	// RateLimit is the most grabs per second that are decided, over all
	// processes; 0 is no limit.
	RateLimit int64 `json:"rate_limit,omitempty"`
	// NoRegrab keeps units that came back counted against the user who had them:
	// in PerUserLimit and in limits of scope user.
	NoRegrab bool `json:"no_regrab,omitempty"`
	// Fulfilment is nil where the shop is not called.
	Fulfilment *Fulfilment `json:"fulfilment,omitempty"`
	// Quota marks the sale that carries a standing quota; see quota.go.
	Quota bool `json:"quota,omitempty"`
}

func (r *Rules) validate() error {
	if r.RateLimit < 0 || r.RateLimit > MaxRateLimit {
		return fieldErrorf("rate_limit", "must be 0 (no limit) to %d grabs per second", MaxRateLimit)
	}
	if err := validateLimits(r.Limits); err != nil {
		return err
	}
	return r.Fulfilment.validate()
}

// Item is one SKU of a sale. Stock is in units, Unlimited for no bound.
type Item struct {
	SKU        string `json:"sku"`
	Stock      int64  `json:"stock"`
	PriceCents int64  `json:"price_cents"`
}

// Phase tells what a client may expect of the sale at the given time.
func (s *Sale) Phase(now time.Time) Phase {
	switch {
	case s.Status == StatusDraft:
		return PhaseDraft
	case s.Status == StatusEnded || !now.Before(s.EndsAt):
		return PhaseEnded
	case s.Status == StatusPaused:
		return PhasePaused
	case now.Before(s.StartsAt):
		return PhaseScheduled
	default:
		return PhaseOpen
	}
}

// Item returns the item with this SKU.
func (s *Sale) Item(sku string) (Item, bool) {
	i := slices.IndexFunc(s.Items, func(it Item) bool { return it.SKU == sku })
	if i < 0 {
		return Item{}, false
	}
	return s.Items[i], true
}

// Duration is a time.Duration that is written as a Go string ("20m0s") in JSON.
type Duration time.Duration

// MarshalText writes the duration as a Go duration string.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a Go duration string.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
