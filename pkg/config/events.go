package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Events says whether what happens to orders is told.
type Events struct {
	On bool `name:"events" default:"true" negatable:"" help:"Write what happens to orders as events: for the stream ORDERS and for webhooks. The same for every order and admin service."`
}

// EventTuning bounds the way of an event onto the stream.
type EventTuning struct {
	MaxAge time.Duration `name:"events-max-age" default:"168h" min:"1h" max:"87600h" help:"Time for which the stream ORDERS keeps an event."`
}

// Webhooks says how the shop's system is called for the orders of sales with a fulfilment.
type Webhooks struct {
	Secrets   string        `name:"webhook-secrets" secret:"" placeholder:"SECRET,..." help:"Secrets that webhooks are signed with, comma separated: each whsec_ and the base64 of 24 to 64 random bytes. Several, for as long as receivers change from one to another. Without any, webhooks wait."`
	Workers   int           `name:"webhook-workers" default:"32" min:"1" max:"1000" help:"Calls of receivers that answer soon, at a time; slow receivers have as many of their own."`
	PerHost   int           `name:"webhook-per-host" default:"8" min:"1" max:"1000" help:"Calls of one process to one receiver at a time."`
	Timeout   time.Duration `name:"webhook-timeout" default:"15s" min:"100ms" max:"1m" help:"Time for one call, its answer included."`
	SlowAfter time.Duration `name:"webhook-slow-after" default:"1s" min:"10ms" max:"1m" help:"Time without an answer after which a receiver counts as slow, until it answers sooner."`
	RetryBase time.Duration `name:"webhook-retry-base" default:"5s" min:"10ms" max:"1h" help:"Delay after the first failed call; it doubles with each one."`
	RetryMax  time.Duration `name:"webhook-retry-max" default:"1h" min:"10ms" max:"24h" help:"Longest delay between two calls for one order."`
}

// Validate refuses secrets that can't be read and delays that contradict each other.
func (w *Webhooks) Validate() error {
	if w.RetryMax < w.RetryBase {
		return errors.New("--webhook-retry-max: must be at least --webhook-retry-base")
	}
	_, err := w.Keys()
	return err
}

// A webhook secret, by the Standard Webhooks specification.
const (
	webhookSecretPrefix = "whsec_"
	minWebhookKey       = 24 // bytes
	maxWebhookKey       = 64
)

// errWebhookSecret does not say what is wrong: that would quote a secret.
var errWebhookSecret = fmt.Errorf("--webhook-secrets: each must be %s and the base64 of %d to %d bytes", webhookSecretPrefix, minWebhookKey, maxWebhookKey)

// Keys returns the secrets' bytes; none when there is no secret.
func (w *Webhooks) Keys() ([][]byte, error) {
	if w.Secrets == "" {
		return nil, nil
	}
	var keys [][]byte
	for secret := range strings.SplitSeq(w.Secrets, ",") {
		code, found := strings.CutPrefix(strings.TrimSpace(secret), webhookSecretPrefix)
		key, err := base64.StdEncoding.DecodeString(code)
		if !found || err != nil || len(key) < minWebhookKey || len(key) > maxWebhookKey {
			return nil, errWebhookSecret
		}
		keys = append(keys, key)
	}
	return keys, nil
}
