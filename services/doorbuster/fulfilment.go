package main

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// fulfilmentFlags say how the shop's system is called.
type fulfilmentFlags struct {
	URL         string `name:"fulfilment" env:"-" xor:"fulfilment" placeholder:"URL" help:"Call the shop here, by a signed webhook, for each order."`
	On          string `name:"fulfil-on" env:"-" placeholder:"EVENT" help:"When the call is due: created or paid. Default paid."`
	GiveUpAfter string `name:"give-up-after" env:"-" placeholder:"TIME" help:"How long failed calls are repeated. Default 24h."`
	OnFailure   string `name:"on-failure" env:"-" placeholder:"END" help:"What becomes of the order then: rollback or park. Default park."`
}

// fulfilmentBody is the member fulfilment of a sale in a request.
type fulfilmentBody struct {
	URL         string `json:"url"`
	Trigger     string `json:"trigger,omitempty"`
	GiveUpAfter string `json:"give_up_after,omitempty"`
	OnFailure   string `json:"on_failure,omitempty"`
}

// body is nil when no flag is given.
func (f *fulfilmentFlags) body() *fulfilmentBody {
	if *f == (fulfilmentFlags{}) {
		return nil
	}
	return &fulfilmentBody{URL: f.URL, Trigger: f.On, GiveUpAfter: f.GiveUpAfter, OnFailure: f.OnFailure}
}

// showFulfilment writes where a sale's orders are sent; not the address's query,
// which may hold a token.
func showFulfilment(w io.Writer, f *sale.Fulfilment) {
	if f == nil {
		return
	}
	host := "the shop"
	if address, err := url.Parse(f.URL); err == nil {
		host = address.Host
	}
	fmt.Fprintf(w, "%s is called when an order is %s, for %s, then %s\n", host, f.Trigger, time.Duration(f.GiveUpAfter), f.OnFailure)
}
