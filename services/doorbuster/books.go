package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// listFlags bound a listing.
type listFlags struct {
	saleName

	Limit int `name:"limit" env:"-" default:"50" help:"Most entries to show; 0 shows all."`
}

// Validate refuses a limit that means nothing.
func (l *listFlags) Validate() error {
	if l.Limit < 0 {
		return errors.New("--limit: must be at least 0")
	}
	return nil
}

// saleFlows reads the log of stock and counters.
type saleFlows struct {
	listFlags

	SKU     string `name:"sku" env:"-" help:"Only this item."`
	Counter string `name:"counter" env:"-" placeholder:"LIMIT/PERIOD/SUBJECT" help:"Only this counter, such as user_day/2026-11-27/ann."`
	Order   string `name:"order" env:"-" help:"Only this order."`
}

// flowView is a line of the stock log.
type flowView struct {
	Seq     int64     `json:"seq"`
	SKU     string    `json:"sku,omitempty"`
	Counter string    `json:"counter,omitempty"`
	Kind    string    `json:"kind"`
	Ref     string    `json:"ref"`
	OrderID string    `json:"order_id,omitempty"`
	User    string    `json:"user,omitempty"`
	Before  int64     `json:"before"`
	Step    int64     `json:"step"`
	After   int64     `json:"after"`
	Reason  string    `json:"reason,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	At      time.Time `json:"at"`
}

// Run prints the log, oldest first.
func (c *saleFlows) Run(ctx context.Context, all *saleCommand, term terminal) error {
	query := url.Values{}
	for name, value := range map[string]string{"sku": c.SKU, "counter": c.Counter, "order_id": c.Order} {
		if value != "" {
			query.Set(name, value)
		}
	}
	flows, err := listing[flowView](ctx, all, adminSales(c.Sale, "flows"), "flows", query, c.Limit)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, flows)
	}
	t := newTable(term.out, "SEQ", "AT", "OF", "KIND", "BEFORE", "STEP", "AFTER", "REF", "REASON")
	for _, f := range flows {
		t.row(f.Seq, when(f.At), f.SKU+f.Counter, f.Kind, f.Before, f.Step, f.After, f.Ref, f.Reason)
	}
	return t.flush()
}

// saleOrders lists orders.
type saleOrders struct {
	listFlags

	Status string `name:"status" env:"-" help:"Only orders in this status."`
	User   string `name:"user" env:"-" help:"Only orders of this user."`
}

// orderView is an order as the API shows it.
type orderView struct {
	ID        string           `json:"order_id"`
	SaleID    string           `json:"sale_id"`
	User      string           `json:"user"`
	Status    sale.OrderStatus `json:"status"`
	Lines     []sale.OrderLine `json:"items"`
	Reason    string           `json:"reason,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
	ExpiresAt time.Time        `json:"expires_at"`
	// LatePaymentAt is when it was paid for after it had ended.
	LatePaymentAt time.Time `json:"late_payment_at,omitzero"`
}

// Run prints the orders.
func (c *saleOrders) Run(ctx context.Context, all *saleCommand, term terminal) error {
	query := url.Values{}
	for name, value := range map[string]string{"status": c.Status, "user": c.User} {
		if value != "" {
			query.Set(name, value)
		}
	}
	orders, err := listing[orderView](ctx, all, adminSales(c.Sale, "orders"), "orders", query, c.Limit)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, orders)
	}
	t := newTable(term.out, "ORDER", "USER", "STATUS", "ITEMS", "CREATED", "EXPIRES")
	for _, o := range orders {
		t.row(o.ID, o.User, o.Status, lines(o.Lines), when(o.CreatedAt), when(o.ExpiresAt))
	}
	return t.flush()
}

// lines writes what an order holds: "2 LAMP, 1 CHAIR (1 returned)".
func lines(all []sale.OrderLine) string {
	texts := make([]string, len(all))
	for i, l := range all {
		texts[i] = fmt.Sprintf("%d %s", l.Quantity, l.SKU)
		if l.Returned > 0 {
			texts[i] += fmt.Sprintf(" (%d returned)", l.Returned)
		}
	}
	return strings.Join(texts, ", ")
}

// saleDeadLetters lists dead letters, or deals with one.
type saleDeadLetters struct {
	listFlags

	Replay string `name:"replay" env:"-" xor:"deal" placeholder:"ORDER" help:"Try this one once more: its grant becomes an order."`
	Cancel string `name:"cancel" env:"-" xor:"deal" placeholder:"ORDER" help:"Give this one up: its stock comes back."`
}

// deadLetterView is a dead letter.
type deadLetterView struct {
	OrderID  string      `json:"order_id"`
	Status   string      `json:"status"`
	Reason   string      `json:"reason"`
	Attempts int         `json:"attempts"`
	Seq      int64       `json:"seq"`
	User     string      `json:"user"`
	Items    []sale.Line `json:"items"`
	At       time.Time   `json:"at"`
}

// Run prints the dead letters, or deals with the one that is named.
func (c *saleDeadLetters) Run(ctx context.Context, all *saleCommand, term terminal) error {
	letters, raw, err := c.find(ctx, all)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, raw)
	}
	t := newTable(term.out, "ORDER", "STATUS", "ATTEMPTS", "SEQ", "AT", "REASON")
	for _, l := range letters {
		t.row(l.OrderID, l.Status, l.Attempts, l.Seq, when(l.At), l.Reason)
	}
	return t.flush()
}

func (c *saleDeadLetters) find(ctx context.Context, all *saleCommand) (letters []deadLetterView, raw any, err error) {
	order, verb := c.Replay, "replay"
	if c.Cancel != "" {
		order, verb = c.Cancel, "cancel"
	}
	if order == "" {
		letters, err = listing[deadLetterView](ctx, all, adminSales(c.Sale, "dead-letters"), "dead_letters", nil, c.Limit)
		return letters, letters, err
	}
	a, err := all.shared()
	if err != nil {
		return nil, nil, err
	}
	defer a.close()
	text, err := a.do(ctx, call{method: http.MethodPost, path: adminSales(c.Sale, "dead-letters", order, verb)})
	if err != nil {
		return nil, nil, err
	}
	var one deadLetterView
	if err := json.Unmarshal(text, &one); err != nil {
		return nil, nil, fmt.Errorf("read the answer: %w", err)
	}
	return []deadLetterView{one}, text, nil
}
