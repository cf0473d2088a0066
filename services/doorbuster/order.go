package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// orderCommand holds the commands for single orders.
type orderCommand struct {
	Show     orderShow     `cmd:"" help:"Show an order."`
	Pay      orderPay      `cmd:"" help:"Mark an order as paid."`
	Cancel   orderCancel   `cmd:"" help:"Cancel an order, paid or not: what it took is for sale again."`
	Return   orderReturn   `cmd:"" help:"Take units of a paid order back."`
	Delivery orderDelivery `cmd:"" help:"Show the call of the shop's system for an order."`
	Resend   orderResend   `cmd:"" help:"Call the shop's system for an order again."`

	API  apiFlags `embed:"" group:"API"`
	JSON bool     `name:"json" env:"-" help:"Print what the API answers, as JSON."`
}

// orderName is the argument of every command for one order.
type orderName struct {
	Order string `arg:"" help:"Id of the order."`
}

// send makes a call for the order and prints the order it is answered with.
func (n orderName) send(ctx context.Context, all *orderCommand, term terminal, method, verb string, body any) error {
	path := []string{"admin", "v1", "orders", n.Order}
	if verb != "" {
		path = append(path, verb)
	}
	return ask(ctx, &all.API, term, all.JSON, call{method: method, path: path, body: body}, func(o orderView) error {
		return o.show(term)
	})
}

// orderShow shows an order.
type orderShow struct{ orderName }

// Run shows the order.
func (c *orderShow) Run(ctx context.Context, all *orderCommand, term terminal) error {
	return c.send(ctx, all, term, http.MethodGet, "", nil)
}

// orderPay marks an order as paid.
type orderPay struct{ orderName }

// Run pays the order.
func (c *orderPay) Run(ctx context.Context, all *orderCommand, term terminal) error {
	return c.send(ctx, all, term, http.MethodPost, "pay", nil)
}

// orderCancel cancels an order.
type orderCancel struct {
	orderName

	Reason string `name:"reason" env:"-" help:"Why, for the stock log."`
}

// Run cancels the order.
func (c *orderCancel) Run(ctx context.Context, all *orderCommand, term terminal) error {
	body := map[string]any{}
	if c.Reason != "" {
		body["reason"] = c.Reason
	}
	return c.send(ctx, all, term, http.MethodPost, "cancel", body)
}

// orderReturn takes units of an order back.
type orderReturn struct {
	orderName

	Items  []string `arg:"" name:"item" placeholder:"SKU:QUANTITY" help:"What comes back: SKU:QUANTITY. May be repeated."`
	ID     string   `name:"id" env:"-" required:"" help:"Names the return in its order: the same id takes back once."`
	Reason string   `name:"reason" env:"-" help:"Why, for the stock log."`
}

// returnBody is the body of POST /admin/v1/orders/{id}/returns.
type returnBody struct {
	ReturnID string       `json:"return_id"`
	Items    []returnItem `json:"items"`
	Reason   string       `json:"reason,omitempty"`
}

type returnItem struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// Run takes the units back.
func (c *orderReturn) Run(ctx context.Context, all *orderCommand, term terminal) error {
	body := returnBody{ReturnID: c.ID, Reason: c.Reason}
	for _, text := range c.Items {
		sku, number, _ := strings.Cut(text, ":")
		quantity, err := strconv.ParseInt(number, 10, 64)
		if err != nil || sku == "" {
			return fmt.Errorf("%q: must be SKU:QUANTITY, such as LAMP:1", text)
		}
		body.Items = append(body.Items, returnItem{sku, quantity})
	}
	return c.send(ctx, all, term, http.MethodPost, "returns", body)
}

// show prints the order.
func (o *orderView) show(term terminal) error {
	status := string(o.Status)
	if o.Reason != "" {
		status += " (" + o.Reason + ")"
	}
	fmt.Fprintf(term.out, "%s  %s, of user %s in sale %s\n", o.ID, status, o.User, o.SaleID)
	fmt.Fprintf(term.out, "created %s, to be paid until %s, changed %s\n", when(o.CreatedAt), when(o.ExpiresAt), when(o.UpdatedAt))
	if !o.LatePaymentAt.IsZero() {
		fmt.Fprintf(term.out, "paid too late at %s: the payment is to be refunded\n", o.LatePaymentAt.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(term.out)
	t := newTable(term.out, "SKU", "QUANTITY", "RETURNED", "CENTS")
	for _, l := range o.Lines {
		t.row(l.SKU, l.Quantity, l.Returned, l.PriceCents)
	}
	return t.flush()
}
