package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// saleAdjust changes the stock of an item.
type saleAdjust struct {
	saleName

	SKU    string `arg:"" help:"The item."`
	Delta  *int64 `arg:"" optional:"" help:"Units to add, or with a minus to take."`
	Stock  string `name:"stock" env:"-" placeholder:"N|unlimited" help:"Instead of units: the whole stock, from or to unlimited."`
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

// body is what the API is asked for.
func (c *saleAdjust) body() (map[string]any, error) {
	body := map[string]any{"reason": c.Reason}
	switch {
	case (c.Delta == nil) == (c.Stock == ""):
		return nil, errors.New("give either the units to add or to take, or --stock")
	case c.Delta != nil:
		body["delta"] = *c.Delta
	case c.Stock == "unlimited":
		body["stock"] = sale.Unlimited
	default:
		units, err := strconv.ParseInt(c.Stock, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("--stock %q: must be a number of units or unlimited", c.Stock)
		}
		body["stock"] = units
	}
	return body, nil
}

// Run changes the stock.
func (c *saleAdjust) Run(ctx context.Context, all *saleCommand, term terminal) error {
	a, err := all.shared()
	if err != nil {
		return err
	}
	defer a.close()
	body, err := c.body()
	if err != nil {
		return err
	}
	text, err := a.do(ctx, call{
		method: http.MethodPost, path: adminSales(c.Sale, "items", c.SKU, "adjust"), key: c.Key, body: body,
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
	if err == nil && c.Delta != nil && v.Applied == 0 && v.ClampedBy > 0 {
		return no("") // nothing could be taken
	}
	return err
}

func (c *saleAdjust) show(term terminal, v *adjustView) {
	fmt.Fprintf(term.out, "%s of sale %s: ", c.SKU, c.Sale)
	if c.Delta != nil {
		fmt.Fprintf(term.out, "%+d ", v.Applied)
	}
	fmt.Fprint(term.out, v.State)
	if v.StockBefore != nil && v.StockAfter != nil {
		fmt.Fprintf(term.out, ", stock %s -> %s", unitsOrUnlimited(*v.StockBefore), unitsOrUnlimited(*v.StockAfter))
	}
	switch {
	case v.ClampedBy > 0 && c.Delta == nil:
		fmt.Fprintf(term.out, ", %d more than asked for: they are sold", v.ClampedBy)
	case v.ClampedBy > 0:
		fmt.Fprintf(term.out, ", %d could not be taken: no more were unsold", v.ClampedBy)
	}
	if v.Replayed {
		fmt.Fprint(term.out, ", done before")
	}
	fmt.Fprintln(term.out)
}
