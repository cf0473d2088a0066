package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// quotaCommand holds the commands for standing limits without a sale.
type quotaCommand struct {
	Put    quotaPut    `cmd:"" help:"Make a quota, or change its limit."`
	Get    quotaGet    `cmd:"" help:"Show a quota and what is used of it."`
	List   quotaList   `cmd:"" help:"List the quotas."`
	Deduct quotaDeduct `cmd:"" help:"Deduct units as a backend does, at the grab service. The exit status is 1 when they are refused."`
	Return quotaReturn `cmd:"" help:"Return units of a deduction as a backend does, at the order service."`

	API  apiFlags `embed:"" group:"API"`
	JSON bool     `name:"json" env:"-" help:"Print what the API answers, as JSON."`
}

// quotaView is a quota as the admin API shows it.
type quotaView struct {
	sale.Quota

	Period    string    `json:"period"`
	EndsAt    time.Time `json:"window_ends_at"`
	Used      int64     `json:"used"`
	Remaining int64     `json:"remaining"`
	Loaded    bool      `json:"loaded"`
}

// send makes a call with the admin key and prints the quota it is answered with.
func (q *quotaCommand) send(ctx context.Context, term terminal, c call) error {
	return ask(ctx, &q.API, term, q.JSON, c, func(v quotaView) error {
		fmt.Fprintf(term.out, "%s: %s per %s (%s)\n", v.Key, unitsOrUnlimited(v.Limit), v.Window, v.Timezone)
		fmt.Fprintf(term.out, "in %s: %d used, %s left, until %s\n", v.Period, v.Used, unitsOrUnlimited(v.Remaining), when(v.EndsAt))
		return nil
	})
}

func unitsOrUnlimited(n int64) string {
	if n == sale.Unlimited {
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}

// quotaKey is the argument of every command for one quota.
type quotaKey struct {
	Key string `arg:"" help:"Key of the quota."`
}

func adminQuotas(more ...string) []string { return append([]string{"admin", "v1", "quotas"}, more...) }

// quotaPut makes a quota or changes its limit.
type quotaPut struct {
	quotaKey

	Limit    string `name:"limit" env:"-" required:"" placeholder:"N" help:"Units per window, or unlimited."`
	Window   string `name:"window" env:"-" placeholder:"WINDOW" help:"day, month or year. Required for a new quota; it can't change."`
	Timezone string `name:"timezone" env:"-" placeholder:"ZONE" help:"IANA name of the time zone, UTC for a new quota; it can't change."`
	Reason   string `name:"reason" env:"-" help:"Why, for the history."`
}

// Run makes or changes the quota.
func (c *quotaPut) Run(ctx context.Context, all *quotaCommand, term terminal) error {
	limit, err := strconv.ParseInt(c.Limit, 10, 64)
	if c.Limit == "unlimited" {
		limit, err = sale.Unlimited, nil
	}
	if err != nil {
		return errors.New("--limit: must be a number of units or unlimited")
	}
	body := map[string]any{"limit": limit}
	for name, value := range map[string]string{"window": c.Window, "timezone": c.Timezone, "reason": c.Reason} {
		if value != "" {
			body[name] = value
		}
	}
	return all.send(ctx, term, call{method: http.MethodPut, path: adminQuotas(c.Key), body: body})
}

// quotaGet shows a quota.
type quotaGet struct{ quotaKey }

// Run shows the quota.
func (c *quotaGet) Run(ctx context.Context, all *quotaCommand, term terminal) error {
	return all.send(ctx, term, call{method: http.MethodGet, path: adminQuotas(c.Key)})
}

// quotaList lists the quotas.
type quotaList struct{}

// Run lists them all.
func (c *quotaList) Run(ctx context.Context, all *quotaCommand, term terminal) error {
	a, err := all.API.client()
	if err != nil {
		return err
	}
	defer a.close()
	quotas, err := pages[quotaView](ctx, a, adminQuotas(), "quotas", nil, 0)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, quotas)
	}
	t := newTable(term.out, "KEY", "LIMIT", "WINDOW", "TIMEZONE", "PERIOD", "USED", "LEFT")
	for _, v := range quotas {
		t.row(v.Key, unitsOrUnlimited(v.Limit), v.Window, v.Timezone, v.Period, v.Used, unitsOrUnlimited(v.Remaining))
	}
	return t.flush()
}

// post makes a backend's call.
func (q *quotaCommand) post(ctx context.Context, at address, gateway config.GatewayKey, c call) (json.RawMessage, error) {
	key := cmp.Or(gateway.Key, q.API.Key)
	if key == "" {
		return nil, errors.New("give a backend's key in the variable DOORBUSTER_GATEWAY_KEY or by --gateway-key")
	}
	a := newAPI(at, key)
	defer a.close()
	c.method = http.MethodPost
	text, err := a.do(ctx, c)
	if answer, ok := errors.AsType[*problem](err); ok && answer.Status == http.StatusUnauthorized && gateway.Key == "" {
		return nil, fmt.Errorf("%w; the admin key does for a backend's in doorbuster dev only: give --gateway-key (or DOORBUSTER_GATEWAY_KEY)", err)
	}
	return text, err
}

// quotaDeduct deducts units.
type quotaDeduct struct {
	quotaKey

	Grab    config.GrabURL    `embed:"" group:"API"`
	Gateway config.GatewayKey `embed:"" group:"API"`

	Units int64  `arg:"" help:"Units to deduct."`
	ID    string `name:"key" env:"-" placeholder:"KEY" help:"Idempotency-Key: the same key deducts once."`
}

// Run deducts. The answer is no when the units are refused.
func (c *quotaDeduct) Run(ctx context.Context, all *quotaCommand, parsed *kong.Context, term terminal) error {
	at := grabAddress(parsed, c.Grab, all.API.AdminURL)
	text, err := all.post(ctx, at, c.Gateway, call{path: []string{"v1", "quotas", c.Key, "deductions"}, key: c.ID, body: map[string]any{"quantity": c.Units}})
	if err != nil {
		return err
	}
	var v struct {
		Allowed     *bool  `json:"allowed"`
		Remaining   int64  `json:"remaining"`
		DeductionID string `json:"deduction_id"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if v.Allowed == nil {
		return fmt.Errorf("%s answered what is no deduction", at.url)
	}
	switch {
	case all.JSON:
		err = writeJSON(term.out, text)
	case *v.Allowed:
		fmt.Fprintf(term.out, "allowed, %s left: %s\n", unitsOrUnlimited(v.Remaining), v.DeductionID)
	default:
		fmt.Fprintf(term.out, "refused, %s left\n", unitsOrUnlimited(v.Remaining))
	}
	if err == nil && !*v.Allowed {
		return no("")
	}
	return err
}

// quotaReturn returns units of a deduction.
type quotaReturn struct {
	quotaKey

	Order   config.OrderURL   `embed:"" group:"API"`
	Gateway config.GatewayKey `embed:"" group:"API"`

	Deduction string `arg:"" help:"Id of the deduction."`
	Units     int64  `arg:"" help:"Units that come back."`
	ID        string `name:"id" env:"-" required:"" help:"Id of the return: the same id returns once."`
}

// Run returns them.
func (c *quotaReturn) Run(ctx context.Context, all *quotaCommand, parsed *kong.Context, term terminal) error {
	at := orderAddress(parsed, c.Order, all.API.AdminURL)
	text, err := all.post(ctx, at, c.Gateway, call{path: []string{"v1", "quotas", c.Key, "returns"}, body: map[string]any{
		"deduction_id": c.Deduction, "return_id": c.ID, "quantity": c.Units,
	}})
	if err != nil {
		return err
	}
	return answered(term, all.JSON, text, func(v quotaReturned) error {
		fmt.Fprintf(term.out, "%d of %d returned\n", v.Returned, v.Deducted)
		return nil
	})
}

// quotaReturned is a deduction and what came back of it.
type quotaReturned struct {
	Deducted int64 `json:"deducted"`
	Returned int64 `json:"returned"`
}
