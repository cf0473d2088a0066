package config

import (
	"fmt"
	"net/url"
)

// CommandLine is every setting of the command line, apart from the flags that only
// one command has. Each command embeds those of the parts that it needs.
type CommandLine struct {
	Admin    AdminURL   `embed:"" group:"API"`
	Key      APIKey     `embed:"" group:"API"`
	Grab     GrabURL    `embed:"" group:"API"`
	Order    OrderURL   `embed:"" group:"API"`
	Gateway  GatewayKey `embed:"" group:"API"`
	Backends Backends   `embed:""`
}

// AdminURL says where the admin service is.
type AdminURL struct {
	URL string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Address of the admin service. The default is that of doorbuster dev, which is all services at once."`
}

// APIKey is the key of who calls the admin API.
type APIKey struct {
	Key string `name:"admin-key" secret:"" placeholder:"KEY" help:"Key of the admin API."`
}

// GrabURL says where the grab service is.
type GrabURL struct {
	URL string `name:"grab-url" placeholder:"URL" help:"Address of the grab service, for load and quota deduct. Empty takes url."`
}

// OrderURL says where the order service is.
type OrderURL struct {
	URL string `name:"order-url" placeholder:"URL" help:"Address of the order service, for quota return. Empty takes url."`
}

// GatewayKey is the key of a backend that deducts from quotas.
type GatewayKey struct {
	Key string `name:"gateway-key" secret:"" placeholder:"KEY" help:"Key of a backend for quota deduct and return: one of the gateway-keys of the grab and the order service. Empty takes admin-key, which does in doorbuster dev."`
}

// Backends says where the backends are, for a command that works on them itself.
type Backends struct {
	Redis Redis `embed:"" group:"Backends, instead of the API" set:"redis=" set:"redishelp="`
	NATS  NATS  `embed:"" group:"Backends, instead of the API" set:"nats=" set:"natshelp="`
	MySQL MySQL `embed:"" group:"Backends, instead of the API" set:"mysqlhelp="`
}

// Validate checks the address.
func (a *AdminURL) Validate() error { return checkURL("url", "DOORBUSTER_URL", a.URL) }

// Validate checks the address, when there is one.
func (g *GrabURL) Validate() error {
	if g.URL == "" {
		return nil
	}
	return checkURL("grab-url", "DOORBUSTER_GRAB_URL", g.URL)
}

// Validate checks the address, when there is one.
func (o *OrderURL) Validate() error {
	if o.URL == "" {
		return nil
	}
	return checkURL("order-url", "DOORBUSTER_ORDER_URL", o.URL)
}

// checkURL refuses what is no address of a service. A user and password would be
// shown wherever the address is told, and nobody asks for them.
func checkURL(flag, variable, text string) error {
	parsed, err := url.Parse(text)
	if err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Hostname() != "" &&
		parsed.User == nil && parsed.RawQuery == "" && parsed.Fragment == "" {
		return nil
	}
	return fmt.Errorf("--%s (or %s) %s: must be http://HOST:PORT", flag, variable, hideInURL(text))
}
