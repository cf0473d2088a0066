package main

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// saleDeliveries lists the calls of the shop's system.
type saleDeliveries struct {
	listFlags

	Status string `name:"status" env:"-" help:"Only those that are waiting, delivered, failed, parked or dropped."`
}

// deliveryView is a delivery as the API shows it.
type deliveryView struct {
	OrderID   string    `json:"order_id"`
	SaleID    string    `json:"sale_id"`
	Host      string    `json:"host"`
	Status    string    `json:"status"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	NextAt    time.Time `json:"next_attempt_at,omitzero"`
	GiveUpAt  time.Time `json:"give_up_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Run prints the deliveries.
func (c *saleDeliveries) Run(ctx context.Context, all *saleCommand, term terminal) error {
	query := url.Values{}
	if c.Status != "" {
		query.Set("status", c.Status)
	}
	found, err := listing[deliveryView](ctx, all, adminSales(c.Sale, "deliveries"), "deliveries", query, c.Limit)
	if err != nil {
		return err
	}
	if all.JSON {
		return writeJSON(term.out, found)
	}
	return tableOf(term, found)
}

func tableOf(term terminal, deliveries []deliveryView) error {
	t := newTable(term.out, "ORDER", "HOST", "STATUS", "ATTEMPTS", "NEXT", "GIVE UP", "LAST ERROR")
	for _, d := range deliveries {
		t.row(d.OrderID, d.Host, d.Status, d.Attempts, when(d.NextAt), when(d.GiveUpAt), d.LastError)
	}
	return t.flush()
}

// orderDelivery shows the call of the shop's system for an order.
type orderDelivery struct{ orderName }

// Run shows the delivery.
func (c *orderDelivery) Run(ctx context.Context, all *orderCommand, term terminal) error {
	return c.ask(ctx, all, term, http.MethodGet)
}

// orderResend has the shop's system called again.
type orderResend struct{ orderName }

// Run sends the delivery again.
func (c *orderResend) Run(ctx context.Context, all *orderCommand, term terminal) error {
	return c.ask(ctx, all, term, http.MethodPost, "resend")
}

// ask makes a call for the order's delivery and prints the answer.
func (n orderName) ask(ctx context.Context, all *orderCommand, term terminal, method string, verb ...string) error {
	path := append([]string{"admin", "v1", "orders", n.Order, "delivery"}, verb...)
	return ask(ctx, &all.API, term, all.JSON, call{method: method, path: path}, func(d deliveryView) error {
		return tableOf(term, []deliveryView{d})
	})
}
