package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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
	Change      saleChange      `cmd:"" help:"Change a draft, or the limits and settings of a live sale."`
	Changes     saleChanges     `cmd:"" help:"Read who changed a sale, when and why."`
	Adjust      saleAdjust      `cmd:"" help:"Raise or lower the stock of an item, or make it unlimited."`
	Flows       saleFlows       `cmd:"" help:"Read the log of a sale's stock and counters."`
	Orders      saleOrders      `cmd:"" help:"List the orders of a sale."`
	Deliveries  saleDeliveries  `cmd:"" help:"List the calls of the shop's system for the orders of a sale."`
	DeadLetters saleDeadLetters `cmd:"" name:"dead-letters" help:"List the grants that could not become orders, or deal with one."`

	API  apiFlags `embed:"" group:"API"`
	JSON bool     `name:"json" env:"-" help:"Print what the API answers, as JSON."`
}

// shared is the client of the commands below.
func (s *saleCommand) shared() (*api, error) { return s.API.client() }

// saleView is a sale as the admin API shows it.
type saleView struct {
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Status       sale.Status      `json:"status"`
	Phase        sale.Phase       `json:"phase"`
	StartsAt     time.Time        `json:"starts_at"`
	EndsAt       time.Time        `json:"ends_at"`
	Window       sale.Duration    `json:"payment_window"`
	PerUserLimit int64            `json:"per_user_limit"`
	Limits       []sale.Limit     `json:"limits"`
	RateLimit    int64            `json:"rate_limit"`
	Regrab       bool             `json:"regrab_after_cancel"`
	Timezone     string           `json:"timezone"`
	Fulfilment   *sale.Fulfilment `json:"fulfilment"`
	State        string           `json:"state"`
	Reason       string           `json:"reason"`
	Generation   int64            `json:"generation"`
	Items        []itemView       `json:"items"`
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
	Limits        []string `name:"limit" env:"-" placeholder:"SCOPE:WINDOW:MAX" help:"Most units of each user, ip or of the sale, per sale, day, month or year: user:day:2. May be repeated."`
	RateLimit     int64    `name:"rate-limit" env:"-" help:"Most grabs decided per second; 0 is no limit."`
	NoRegrab      bool     `name:"no-regrab" env:"-" help:"Who gave units back may not grab them again."`
	Timezone      string   `name:"timezone" env:"-" default:"UTC" help:"IANA name of the sale's time zone."`
	Approve       bool     `name:"approve" env:"-" help:"Approve it at once."`

	Fulfilment fulfilmentFlags `embed:""`
}

// draftBody is the body of POST /admin/v1/sales.
type draftBody struct {
	ID            string       `json:"id,omitempty"`
	Name          string       `json:"name"`
	StartsAt      time.Time    `json:"starts_at"`
	EndsAt        time.Time    `json:"ends_at"`
	PaymentWindow string       `json:"payment_window"`
	PerUserLimit  int64        `json:"per_user_limit"`
	Limits        []sale.Limit `json:"limits"`
	RateLimit     int64        `json:"rate_limit"`
	Regrab        bool         `json:"regrab_after_cancel"`
	Timezone      string       `json:"timezone"`
	Items         []sale.Item  `json:"items"`

	Fulfilment *fulfilmentBody `json:"fulfilment,omitempty"`
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
		RateLimit: c.RateLimit, Regrab: !c.NoRegrab, Fulfilment: c.Fulfilment.body(),
	}
	if body.Limits, err = parseLimits(c.Limits); err != nil {
		return draftBody{}, err
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

// parseLimits reads SCOPE:WINDOW:MAX.
func parseLimits(texts []string) ([]sale.Limit, error) {
	limits := make([]sale.Limit, len(texts))
	for i, text := range texts {
		bad := fmt.Errorf("--limit %q: must be SCOPE:WINDOW:MAX, such as user:day:2", text)
		parts := strings.Split(text, ":")
		if len(parts) != 3 {
			return nil, bad
		}
		most, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return nil, bad
		}
		limits[i] = sale.Limit{Scope: sale.LimitScope(parts[0]), Window: sale.LimitWindow(parts[1]), Max: most}
	}
	return limits, nil
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

// saleMove is a step in a sale's life.
type saleMove struct {
	saleName

	Reason string `name:"reason" env:"-" help:"Why, for the sale's history."`
}

// move makes one step in a sale's life.
func (n saleMove) move(ctx context.Context, all *saleCommand, term terminal, verb string) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	ask := call{method: http.MethodPost, path: adminSales(n.Sale, verb)}
	if n.Reason != "" {
		ask.body = map[string]string{"reason": n.Reason}
	}
	text, err := a.do(ctx, ask)
	if err != nil {
		return err
	}
	return all.show(term, text)
}

type (
	saleApprove struct{ saleMove }
	salePause   struct{ saleMove }
	saleResume  struct{ saleMove }
	saleEnd     struct{ saleMove }
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
		var sold int64
		for _, it := range s.Items {
			sold += it.Sold
		}
		t.row(s.ID, s.Name, s.Phase, s.State, when(s.StartsAt), when(s.EndsAt), len(s.Items), totalStock(s.Items), sold)
	}
	return t.flush()
}

// totalStock is the stock of all items, such as "20 + unlimited".
func totalStock(items []itemView) string {
	var bounded int64
	unlimited := false
	for _, it := range items {
		if it.Stock == sale.Unlimited {
			unlimited = true
			continue
		}
		bounded += it.Stock
	}
	switch {
	case !unlimited:
		return strconv.FormatInt(bounded, 10)
	case bounded == 0:
		return unitsOrUnlimited(sale.Unlimited)
	default:
		return strconv.FormatInt(bounded, 10) + " + " + unitsOrUnlimited(sale.Unlimited)
	}
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
	perUser := "no limit per user"
	if v.PerUserLimit > 0 {
		perUser = fmt.Sprintf("at most %d per user", v.PerUserLimit)
	}
	fmt.Fprintf(term.out, "opens %s, ends %s, %s to pay, %s\n", when(v.StartsAt), when(v.EndsAt), time.Duration(v.Window), perUser)
	fmt.Fprintf(term.out, "time zone %s\n", v.Timezone)
	for _, l := range v.Limits {
		fmt.Fprintf(term.out, "limit %s: at most %d\n", l.Name(), l.Max)
	}
	if v.RateLimit > 0 {
		fmt.Fprintf(term.out, "at most %d grabs per second\n", v.RateLimit)
	}
	if !v.Regrab {
		fmt.Fprintln(term.out, "who gives units back may not grab them again")
	}
	showFulfilment(term.out, v.Fulfilment)
	fmt.Fprintln(term.out)
	t := newTable(term.out, "SKU", "STOCK", "REMAINING", "SOLD", "GRANTED", "RETURNED", "CENTS")
	for _, it := range v.Items {
		remaining := "?"
		if it.Remaining != nil {
			remaining = unitsOrUnlimited(*it.Remaining)
		}
		t.row(it.SKU, unitsOrUnlimited(it.Stock), remaining, it.Sold, it.Granted, it.Returned, it.PriceCents)
	}
	return t.flush()
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
