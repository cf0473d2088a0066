package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// saleChange changes what is given, and leaves the rest.
type saleChange struct {
	saleName

	Name          *string  `name:"name" env:"-" help:"Name for people."`
	Starts        string   `name:"starts" env:"-" placeholder:"TIME" help:"When it opens: now, +10m, or an RFC 3339 time."`
	Ends          string   `name:"ends" env:"-" placeholder:"TIME" help:"When it ends: now, +1h from now, or an RFC 3339 time."`
	PaymentWindow *string  `name:"payment-window" env:"-" help:"Time to pay an order."`
	PerUserLimit  *int64   `name:"per-user-limit" env:"-" help:"Most units one user may hold; 0 is no limit."`
	Limits        []string `name:"limit" env:"-" placeholder:"SCOPE:WINDOW:MAX" help:"All limits of the sale. Of a live one only the maxima change. May be repeated."`
	NoLimits      bool     `name:"no-limits" env:"-" xor:"limits" help:"Take all limits off a draft."`
	RateLimit     *int64   `name:"rate-limit" env:"-" help:"Most grabs decided per second; 0 is no limit."`
	Regrab        *bool    `name:"regrab" env:"-" negatable:"" help:"Whether who gave units back may grab them again."`
	Reason        string   `name:"reason" env:"-" help:"Why, for the sale's history."`

	Fulfilment   fulfilmentFlags `embed:""`
	NoFulfilment bool            `name:"no-fulfilment" env:"-" xor:"fulfilment" help:"Call the shop no more."`
}

// body is what the API is asked for.
func (c *saleChange) body(now time.Time) (map[string]any, error) {
	body := make(map[string]any)
	for field, value := range map[string]*string{"name": c.Name, "payment_window": c.PaymentWindow} {
		if value != nil {
			body[field] = *value
		}
	}
	for field, value := range map[string]*int64{"per_user_limit": c.PerUserLimit, "rate_limit": c.RateLimit} {
		if value != nil {
			body[field] = *value
		}
	}
	for field, text := range map[string]string{"starts_at": c.Starts, "ends_at": c.Ends} {
		if text == "" {
			continue
		}
		at, err := parseWhen(text, now)
		if err != nil {
			return nil, err
		}
		body[field] = at
	}
	if c.Regrab != nil {
		body["regrab_after_cancel"] = *c.Regrab
	}
	if len(c.Limits) > 0 || c.NoLimits {
		limits, err := parseLimits(c.Limits)
		if err != nil {
			return nil, err
		}
		body["limits"] = limits
	}
	if fulfilment := c.Fulfilment.body(); fulfilment != nil {
		body["fulfilment"] = fulfilment
	}
	if c.NoFulfilment {
		body["fulfilment"] = nil
	}
	if len(body) == 0 {
		return nil, errors.New("give at least one thing to change, such as --ends or --per-user-limit")
	}
	if c.Reason != "" {
		body["reason"] = c.Reason
	}
	return body, nil
}

// Run changes the sale.
func (c *saleChange) Run(ctx context.Context, all *saleCommand, term terminal) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	body, err := c.body(time.Now())
	if err != nil {
		return err
	}
	text, err := a.do(ctx, call{method: http.MethodPatch, path: adminSales(c.Sale), body: body})
	if err != nil {
		return err
	}
	return all.show(term, text)
}

// saleChanges reads the history of a sale.
type saleChanges struct{ listFlags }

// Run prints the history, oldest first.
func (c *saleChanges) Run(ctx context.Context, all *saleCommand, term terminal) error {
	changes, err := listing[ledger.Change](ctx, all, adminSales(c.Sale, "changes"), "changes", nil, c.Limit)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, changes)
	}
	t := newTable(term.out, "SEQ", "AT", "FIELD", "OLD", "NEW", "BY", "REASON")
	for _, ch := range changes {
		t.row(ch.Seq, when(ch.At), ch.Field, ch.Old, ch.New, ch.Actor, ch.Reason)
	}
	return t.flush()
}
