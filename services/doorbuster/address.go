package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// address is where a service is, and the settings that say so.
type address struct {
	url      string
	service  string // grab, order or admin
	settings string // for whoever has to mend them
}

const urlSettings = "--url (or DOORBUSTER_URL)"

func adminAddress(at config.AdminURL) address {
	return address{url: at.URL, service: "admin", settings: urlSettings}
}

func grabAddress(parsed *kong.Context, at config.GrabURL, admin config.AdminURL) address {
	own := address{url: at.URL, service: "grab", settings: "--grab-url (or DOORBUSTER_GRAB_URL)"}
	return own.orOf(admin, parsed, "grab-url")
}

func orderAddress(parsed *kong.Context, at config.OrderURL, admin config.AdminURL) address {
	own := address{url: at.URL, service: "order", settings: "--order-url (or DOORBUSTER_ORDER_URL)"}
	return own.orOf(admin, parsed, "order-url")
}

// orOf lets --url stand in for the service's own setting: when that is not given, or
// when it was exported and --url was typed.
func (a address) orOf(admin config.AdminURL, parsed *kong.Context, flag string) address {
	if a.url != "" && (givenBy(parsed, flag) == byFlag || givenBy(parsed, "url") != byFlag) {
		return a
	}
	a.url, a.settings = admin.URL, a.settings+", else "+urlSettings
	return a
}

// explain adds to the error of a request what to look at, when nobody listens at the
// address or it is another service's.
func (a address) explain(err error) error {
	var question string
	failed, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && failed.Op == "dial":
		question = "is the " + a.service + " service running there?"
	case strings.Contains(err.Error(), web.NoSuchPath):
		question = "is that the " + a.service + " service?"
	default:
		return err
	}
	return fmt.Errorf("%w; %s Its address is %s", err, question, a.settings)
}
