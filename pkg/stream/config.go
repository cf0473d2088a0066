package stream

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Config says how to reach NATS and how what is kept there is made. A zero field
// takes its default.
type Config struct {
	// URL is one or more addresses, comma separated. Open needs it.
	URL string
	// Creds is the path of a credentials file (JWT and seed); empty is none.
	Creds string
	// Name is how the connection shows in NATS monitoring. Default "doorbuster".
	Name string
	// Logger hears about lost and regained connections and about what the
	// consumer could not do. Default slog.Default().
	Logger *slog.Logger

	// Replicas is the number of servers that keep each stream and bucket, 1 to 5.
	// Default 1. What exists is never scaled down. See Publish about 3 and 5.
	Replicas int
	// FirstSeq is the first sequence of GRANTS when this process makes it. Default:
	// the time in microseconds, so that no sequence ever comes twice.
	FirstSeq uint64
	// AckWait is the time to settle a message of the consumer before it is
	// delivered again, 1s to 1h. Default: what the consumer has, 30s for a new one,
	// because only the order workers know how long they take.
	AckWait time.Duration
	// MaxAckPending is how many messages of the consumer may be delivered and not
	// settled, over all workers, 1 to 1,000,000. Default 4096. Messages that wait
	// out a Retry count, so it must have room for as many as can fail within the
	// longest delay; when it is full, nothing is delivered.
	MaxAckPending int
	// EventsMaxAge is how long ORDERS keeps an event, 1h to 10 years. Default: what the
	// stream has, 7 days for a new one, because only the order services know.
	EventsMaxAge time.Duration
	// EventsInFlight is how many events PublishEvents has sent and not heard of at a
	// time, 1 to 10,000. Default 256.
	EventsInFlight int

	// ConnectTimeout bounds connecting to one server, 10ms to 1m. Default 2s.
	ConnectTimeout time.Duration
	// PublishTimeout bounds the wait for the acknowledgement of one publish, 10ms
	// to 1m. Default 2s.
	PublishTimeout time.Duration
	// RequestTimeout bounds every other question to JetStream, 10ms to 1m. Default 5s.
	RequestTimeout time.Duration
	// ReconnectWait is the pause between two attempts to reconnect; a random part
	// of the same length is added. 1ms to 1m, default 100ms. There is no limit of attempts.
	ReconnectWait time.Duration
	// PingInterval is the time between two pings of a silent server; after two
	// without an answer the connection counts as lost. 100ms to 1m, default 2s.
	PingInterval time.Duration

	// FenceAttempts bounds the tries of BeginGeneration, 1 to 10,000. Default 200.
	FenceAttempts int
	// ReadAttempts bounds the failures in a row, without a message between them,
	// that ReadGrants gets over, 1 to 10,000. Default 60: about a minute.
	ReadAttempts int
	// ReconcilesMax bounds the requests ServeReconcile serves at a time, 1 to 1000. Default 8.
	ReconcilesMax int
}

// defaultAckWait is that of a consumer nobody asked for anything else.
const defaultAckWait = 30 * time.Second

// Delays between attempts, see backoff.Delay.
const (
	retryBase = 20 * time.Millisecond
	retryMax  = time.Second
	// fenceRetryMax is short: a fence competes with the publishers of a sale, one
	// of which is in flight at a time.
	fenceRetryMax = 50 * time.Millisecond
)

func (c Config) withDefaults() Config {
	setDefault(&c.Name, "doorbuster")
	setDefault(&c.Replicas, 1)
	setDefault(&c.MaxAckPending, 4096)
	setDefault(&c.EventsInFlight, 256)
	setDefault(&c.ConnectTimeout, 2*time.Second)
	setDefault(&c.PublishTimeout, 2*time.Second)
	setDefault(&c.RequestTimeout, 5*time.Second)
	setDefault(&c.ReconnectWait, 100*time.Millisecond)
	setDefault(&c.PingInterval, 2*time.Second)
	setDefault(&c.FenceAttempts, 200)
	setDefault(&c.ReadAttempts, 60)
	setDefault(&c.ReconcilesMax, 8)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate names the first field that is out of range. c has its defaults.
func (c Config) validate() error {
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"Replicas", c.Replicas, 1, 5},
		{"MaxAckPending", c.MaxAckPending, 1, 1_000_000},
		{"EventsInFlight", c.EventsInFlight, 1, 10_000},
		{"FenceAttempts", c.FenceAttempts, 1, 10_000},
		{"ReadAttempts", c.ReadAttempts, 1, 10_000},
		{"ReconcilesMax", c.ReconcilesMax, 1, 1000},
	} {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("stream: %s must be %d to %d, not %d", f.name, f.low, f.high, f.value)
		}
	}
	for _, f := range []struct {
		name             string
		value, low, high time.Duration
	}{
		{"AckWait", cmp.Or(c.AckWait, defaultAckWait), time.Second, time.Hour},
		{"EventsMaxAge", cmp.Or(c.EventsMaxAge, defaultEventsMaxAge), time.Hour, 10 * 365 * 24 * time.Hour},
		{"ConnectTimeout", c.ConnectTimeout, 10 * time.Millisecond, time.Minute},
		{"PublishTimeout", c.PublishTimeout, 10 * time.Millisecond, time.Minute},
		{"RequestTimeout", c.RequestTimeout, 10 * time.Millisecond, time.Minute},
		{"ReconnectWait", c.ReconnectWait, time.Millisecond, time.Minute},
		{"PingInterval", c.PingInterval, 100 * time.Millisecond, time.Minute},
	} {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("stream: %s must be %s to %s, not %s", f.name, f.low, f.high, f.value)
		}
	}
	return nil
}

// Options are the connection options this package needs, for a caller that makes
// its own connection (to a server inside the process, say) and hands it to New.
func (c Config) Options() []nats.Option {
	c = c.withDefaults()
	log := c.Logger
	options := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(c.ConnectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(c.ReconnectWait),
		nats.ReconnectJitter(c.ReconnectWait, c.ReconnectWait),
		// Credentials may be replaced while we run; the service must not die of it.
		nats.IgnoreAuthErrorAbort(),
		// What is published while the connection is down fails at once, and is not
		// kept and sent long after its deadline.
		nats.ReconnectBufSize(noReconnectBuffer),
		nats.PingInterval(c.PingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when we close it ourselves
				log.Warn("nats connection lost", "error", err)
			}
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			log.Info("nats connected", "server", nc.ConnectedServerName(), "version", nc.ConnectedServerVersion())
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("nats reconnected", "server", nc.ConnectedServerName(), "version", nc.ConnectedServerVersion())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("nats reports a problem", "subject", subject, "error", err)
		}),
	}
	if c.Creds != "" {
		options = append(options, nats.UserCredentials(c.Creds))
	}
	return options
}

// noReconnectBuffer is what nats.ReconnectBufSize takes for "no buffer".
const noReconnectBuffer = -1
