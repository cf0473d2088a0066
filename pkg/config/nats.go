package config

import (
	"errors"
	"net/url"
	"strings"
	"time"
)

// NATS says how to reach NATS, and how its streams are kept.
type NATS struct {
	URL            string        `name:"nats" secret:"url" default:"${nats=nats://127.0.0.1:4222}" placeholder:"URL,..." help:"NATS servers, comma separated: nats://user:password@host:port (tls: for TLS).${natshelp=}"`
	Creds          string        `name:"nats-creds" placeholder:"FILE" help:"Credentials file (JWT and seed) for NATS."`
	ConnectTimeout time.Duration `name:"nats-connect-timeout" default:"2s" min:"10ms" max:"1m" help:"Time to connect to one NATS server."`
	PublishTimeout time.Duration `name:"publish-timeout" default:"2s" min:"50ms" max:"1m" help:"Time for a published batch to be acknowledged as stored. After it the answer is pending."`
	Replicas       int           `name:"stream-replicas" default:"1" min:"1" max:"5" help:"Servers that keep each stream and bucket. 3 in production; 1 is a single server."`
}

// errNATSURL leaves out what net/url says, which may quote a password.
var errNATSURL = errors.New("--nats: every address must be nats://, tls://, ws:// or wss:// followed by user:password@host:port, special characters in the password percent-encoded")

// Validate checks the URLs, when there are any.
func (n *NATS) Validate() error {
	if !n.Given() {
		return nil
	}
	for one := range strings.SplitSeq(n.URL, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		parsed, err := url.Parse(one)
		if err != nil || parsed.Hostname() == "" {
			return errNATSURL
		}
		switch parsed.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return errNATSURL
		}
	}
	return nil
}

// Given reports whether a NATS is configured.
func (n *NATS) Given() bool { return n.URL != "" }
