package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// saleCommand holds the commands for sales and their books.
type saleCommand struct {
	Create      saleCreate      `cmd:"" help:"Create a draft, or with --approve a sale."`
	Approve     saleApprove     `cmd:"" help:"Approve a draft: it opens by its clock."`
	Pause       salePause       `cmd:"" help:"Pause an approved sale."`
	Resume      saleResume      `cmd:"" help:"Resume a paused sale."`
	End         saleEnd         `cmd:"" help:"End a sale for good."`
	Show        saleShow        `cmd:"" help:"Show a sale and its counts."`
	List        saleList        `cmd:"" help:"List the sales."`
	Adjust      saleAdjust      `cmd:"" help:"Raise or lower the stock of an item."`
	Flows       saleFlows       `cmd:"" help:"Read the stock log of a sale."`
	Orders      saleOrders      `cmd:"" help:"List the orders of a sale."`
	DeadLetters saleDeadLetters `cmd:"" name:"dead-letters" help:"List the grants that could not become orders, or deal with one."`

	API  apiFlags `embed:"" group:"API"`
	JSON bool     `name:"json" env:"-" help:"Print what the API answers, as JSON."`
}

// shared is the client of the commands below.
func (s *saleCommand) shared() (*api, error) { return s.API.client() }

// saleView is a sale as the admin API shows it.
type saleView struct {
	ID           string        `json:"id"`
	Name         string        `json:"name"`
	Status       sale.Status   `json:"status"`
	Phase        sale.Phase    `json:"phase"`
	StartsAt     time.Time     `json:"starts_at"`
	EndsAt       time.Time     `json:"ends_at"`
	Window       sale.Duration `json:"payment_window"`
	PerUserLimit int64         `json:"per_user_limit"`
	State        string        `json:"state"`
	Reason       string        `json:"reason"`
	Generation   int64         `json:"generation"`
	Items        []itemView    `json:"items"`
}

type itemView struct {
	SKU        string `json:"sku"`
	Stock      int64  `json:"stock"`
	PriceCents int64  `json:"price_cents"`
	Remaining  *int64 `json:"remaining"`
	Granted    int64  `json:"granted"`
	Returned   int64  `json:"returned"`
	Sold       int64  `json:"sold"`
}

// saleCreate makes a draft.
type saleCreate struct {
	ID            string   `name:"id" env:"-" help:"Id of the sale. Made up when left out."`
	Name          string   `name:"name" env:"-" required:"" help:"Name for people."`
	Items         []string `name:"item" env:"-" required:"" placeholder:"SKU:STOCK[:CENTS]" help:"An item with its stock in units, -1 for unlimited, and its price in cents. May be repeated."`
	Starts        string   `name:"starts" env:"-" default:"now" placeholder:"TIME" help:"When it opens: now, +10m, or an RFC 3339 time."`
	Ends          string   `name:"ends" env:"-" default:"+24h" placeholder:"TIME" help:"When it ends: +1h from its opening, or an RFC 3339 time."`
	PaymentWindow string   `name:"payment-window" env:"-" default:"20m" help:"Time to pay an order."`
	PerUserLimit  int64    `name:"per-user-limit" env:"-" default:"1" help:"Most units one user may hold; 0 is no limit."`
	Timezone      string   `name:"timezone" env:"-" default:"UTC" help:"IANA name of the sale's time zone."`
	Approve       bool     `name:"approve" env:"-" help:"Approve it at once."`
}

// draftBody is the body of POST /admin/v1/sales.
type draftBody struct {
	ID            string      `json:"id,omitempty"`
	Name          string      `json:"name"`
	StartsAt      time.Time   `json:"starts_at"`
	EndsAt        time.Time   `json:"ends_at"`
	PaymentWindow string      `json:"payment_window"`
	PerUserLimit  int64       `json:"per_user_limit"`
	Timezone      string      `json:"timezone"`
	Items         []sale.Item `json:"items"`
}

func (c *saleCreate) draft(now time.Time) (draftBody, error) {
	starts, err := parseWhen(c.Starts, now)
	if err != nil {
		return draftBody{}, fmt.Errorf("--starts: %w", err)
	}
	ends, err := parseWhen(c.Ends, starts)
	if err != nil {
		return draftBody{}, fmt.Errorf("--ends: %w", err)
	}
	body := draftBody{
		ID: c.ID, Name: c.Name, StartsAt: starts, EndsAt: ends,
		PaymentWindow: c.PaymentWindow, PerUserLimit: c.PerUserLimit, Timezone: c.Timezone,
	}
	for _, text := range c.Items {
		item, err := parseItem(text)
		if err != nil {
			return draftBody{}, err
		}
		body.Items = append(body.Items, item)
	}
	return body, nil
}

// parseWhen reads "now", "+1h" counted from base, or an RFC 3339 time.
func parseWhen(text string, base time.Time) (time.Time, error) {
	if text == "now" {
		return base.UTC(), nil
	}
	if after, ok := strings.CutPrefix(text, "+"); ok {
		d, err := time.ParseDuration(after)
		if err == nil {
			return base.Add(d).UTC(), nil
		}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q must be now, +1h30m, or a time such as 2026-11-27T09:00:00Z", text)
	}
	return at.UTC(), nil
}

func parseItem(text string) (sale.Item, error) {
	bad := fmt.Errorf("--item %q: must be SKU:STOCK or SKU:STOCK:CENTS, such as LAMP:1000:4900", text)
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return sale.Item{}, bad
	}
	item := sale.Item{SKU: parts[0]}
	var err error
	if item.Stock, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return sale.Item{}, bad
	}
	if len(parts) == 3 {
		if item.PriceCents, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
			return sale.Item{}, bad
		}
	}
	return item, nil
}

// Run creates the sale.
func (c *saleCreate) Run(ctx context.Context, all *saleCommand, term terminal) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	body, err := c.draft(time.Now())
	if err != nil {
		return err
	}
	text, err := a.do(ctx, call{method: http.MethodPost, path: adminSales(), body: body})
	if err != nil {
		return err
	}
	if c.Approve {
		var made saleView
		if err := json.Unmarshal(text, &made); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if text, err = a.do(ctx, call{method: http.MethodPost, path: adminSales(made.ID, "approve")}); err != nil {
			return err
		}
	}
	return all.show(term, text)
}

// saleName is the argument of every command for one sale.
type saleName struct {
	Sale string `arg:"" help:"Id of the sale."`
}

// move makes one step in a sale's life.
func (n saleName) move(ctx context.Context, all *saleCommand, term terminal, verb string) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	text, err := a.do(ctx, call{method: http.MethodPost, path: adminSales(n.Sale, verb)})
	if err != nil {
		return err
	}
	return all.show(term, text)
}

type (
	saleApprove struct{ saleName }
	salePause   struct{ saleName }
	saleResume  struct{ saleName }
	saleEnd     struct{ saleName }
	saleShow    struct{ saleName }
	saleList    struct{}
)

// Run approves the draft.
func (c *saleApprove) Run(ctx context.Context, all *saleCommand, term terminal) error {
	return c.move(ctx, all, term, "approve")
}

// Run pauses the sale.
func (c *salePause) Run(ctx context.Context, all *saleCommand, term terminal) error {
	return c.move(ctx, all, term, "pause")
}

// Run resumes the sale.
func (c *saleResume) Run(ctx context.Context, all *saleCommand, term terminal) error {
	return c.move(ctx, all, term, "resume")
}

// Run ends the sale.
func (c *saleEnd) Run(ctx context.Context, all *saleCommand, term terminal) error {
	return c.move(ctx, all, term, "end")
}

// Run shows the sale.
func (c *saleShow) Run(ctx context.Context, all *saleCommand, term terminal) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	text, err := a.do(ctx, call{method: http.MethodGet, path: adminSales(c.Sale)})
	if err != nil {
		return err
	}
	return all.show(term, text)
}

// Run lists the sales.
func (c *saleList) Run(ctx context.Context, all *saleCommand, term terminal) error {
	sales, err := listing[saleView](ctx, all, adminSales(), "sales", nil, 0)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, sales)
	}
	t := newTable(term.out, "ID", "NAME", "PHASE", "STATE", "OPENS", "ENDS", "ITEMS", "STOCK", "SOLD")
	for _, s := range sales {
		var stock, sold int64
		for _, it := range s.Items {
			stock, sold = stock+it.Stock, sold+it.Sold
		}
		t.row(s.ID, s.Name, s.Phase, s.State, when(s.StartsAt), when(s.EndsAt), len(s.Items), stock, sold)
	}
	return t.flush()
}

// show prints a sale that the API answered.
func (s *saleCommand) show(term terminal, text json.RawMessage) error {
	if s.JSON {
		return writeJSON(term.out, text)
	}
	var v saleView
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	state := v.State
	if v.Reason != "" {
		state += " (" + v.Reason + ")"
	}
	fmt.Fprintf(term.out, "%s  %q  %s, %s, generation %d\n", v.ID, v.Name, v.Phase, state, v.Generation)
	fmt.Fprintf(term.out, "opens %s, ends %s, %s to pay, at most %d per user\n\n", when(v.StartsAt), when(v.EndsAt), time.Duration(v.Window), v.PerUserLimit)
	t := newTable(term.out, "SKU", "STOCK", "REMAINING", "SOLD", "GRANTED", "RETURNED", "CENTS")
	for _, it := range v.Items {
		remaining := "?"
		if it.Remaining != nil {
			remaining = strconv.FormatInt(*it.Remaining, 10)
		}
		t.row(it.SKU, it.Stock, remaining, it.Sold, it.Granted, it.Returned, it.PriceCents)
	}
	return t.flush()
}

// saleAdjust changes the stock of an item.
type saleAdjust struct {
	saleName

	SKU    string `arg:"" help:"The item."`
	Delta  int64  `arg:"" help:"Units to add, or with a minus to take."`
	Reason string `name:"reason" env:"-" required:"" help:"Why, for the stock log."`
	Key    string `name:"key" env:"-" placeholder:"KEY" help:"Idempotency-Key: the same key adjusts once."`
}

// adjustView is the answer to an adjustment.
type adjustView struct {
	State       string `json:"state"`
	Requested   int64  `json:"requested"`
	Applied     int64  `json:"applied"`
	ClampedBy   int64  `json:"clamped_by"`
	StockBefore *int64 `json:"stock_before"`
	StockAfter  *int64 `json:"stock_after"`
	Replayed    bool   `json:"replayed"`
}

// Run changes the stock.
func (c *saleAdjust) Run(ctx context.Context, all *saleCommand, term terminal) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	text, err := a.do(ctx, call{
		method: http.MethodPost, path: adminSales(c.Sale, "items", c.SKU, "adjust"), key: c.Key,
		body: map[string]any{"delta": c.Delta, "reason": c.Reason},
	})
	if err != nil {
		return err
	}
	var v adjustView
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if all.JSON {
		err = writeJSON(term.out, text)
	} else {
		c.show(term, &v)
	}
	if err == nil && v.Applied == 0 && v.ClampedBy > 0 {
		return errQuiet // nothing could be taken
	}
	return err
}

func (c *saleAdjust) show(term terminal, v *adjustView) {
	fmt.Fprintf(term.out, "%s of sale %s: %+d %s", c.SKU, c.Sale, v.Applied, v.State)
	if v.StockBefore != nil && v.StockAfter != nil {
		fmt.Fprintf(term.out, ", stock %d -> %d", *v.StockBefore, *v.StockAfter)
	}
	if v.ClampedBy > 0 {
		fmt.Fprintf(term.out, ", %d could not be taken: they are sold", v.ClampedBy)
	}
	if v.Replayed {
		fmt.Fprint(term.out, ", done before")
	}
	fmt.Fprintln(term.out)
}

// bareNegative lets "sale adjust SALE SKU -10" be written as people do: the number,
// which kong takes for a flag, goes to the end, behind "--". It is the last argument.
func bareNegative(args []string) []string {
	if len(args) < 2 || args[0] != "sale" || !slices.Contains(args, "adjust") || slices.Contains(args, "--") {
		return args
	}
	at := slices.IndexFunc(args, func(arg string) bool {
		n, err := strconv.ParseInt(arg, 10, 64)
		return err == nil && n < 0
	})
	if at < 0 {
		return args
	}
	// The value of the flag before it, unless that takes none.
	if before := args[at-1]; strings.HasPrefix(before, "--") && !strings.Contains(before, "=") && before != "--json" {
		return args
	}
	return append(slices.Delete(slices.Clone(args), at, at+1), "--", args[at])
}

// pageLimit is the most entries of one page of the API.
const pageLimit = 200

// listing is pages for a command.
func listing[T any](ctx context.Context, all *saleCommand, path []string, name string, query url.Values, most int) ([]T, error) {
	a, err := all.shared()
	if err != nil {
		return nil, err
	}
	defer a.close()
	return pages[T](ctx, a, path, name, query, most)
}

// pages reads pages of a listing until most entries are there; 0 reads all.
func pages[T any](ctx context.Context, a *api, path []string, name string, query url.Values, most int) ([]T, error) {
	entries := []T{}
	if query == nil {
		query = url.Values{}
	}
	for {
		size := pageLimit
		if most > 0 {
			size = min(size, most-len(entries))
		}
		query.Set("limit", strconv.Itoa(size))
		page, err := get[map[string]json.RawMessage](ctx, a, call{method: http.MethodGet, path: path, query: query})
		if err != nil {
			return nil, err
		}
		var some []T
		var next *string
		if err := json.Unmarshal(page[name], &some); err != nil {
			return nil, fmt.Errorf("read the listing: %w", err)
		}
		if err := json.Unmarshal(page["next_cursor"], &next); err != nil {
			return nil, fmt.Errorf("read the listing: %w", err)
		}
		entries = append(entries, some...)
		if next == nil || (most > 0 && len(entries) >= most) {
			return entries, nil
		}
		query.Set("cursor", *next)
	}
}
