package reconcile

import (
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// Config holds the bounds of a reconciler. The zero value of a field means its
// default.
type Config struct {
	// AuditInterval is the time between two comparisons of Redis with the
	// ledger. Default 30s.
	AuditInterval time.Duration
	// DeepAuditInterval is how often, at most, an audit counts all orders of a sale
	// at rest; the others compare units only. Default 10m.
	DeepAuditInterval time.Duration
	// RelayInterval is the time between two looks for orphaned outboxes and for
	// givebacks that a crash left unapplied. Default 1s.
	RelayInterval time.Duration
	// LeaseTTL is the life of the lease on a sale when its holder dies, in whole
	// seconds. Default 15s.
	LeaseTTL time.Duration
	// WaitTimeout bounds the wait for another reconciler that holds the lease.
	// Default 30s.
	WaitTimeout time.Duration
	// PublishTimeout bounds what a run spends on publishing outboxes before it
	// fences: what is left then is void. Default 5s.
	PublishTimeout time.Duration
	// StepTimeout bounds each other step of a run; reading, folding and writing count
	// as one. Default 5m: many times what a million orders take.
	StepTimeout time.Duration
	// MaxAttempts bounds how often one run begins anew because Redis failed or
	// moved under it. Default 3.
	MaxAttempts int
	// Chunk is how many entries one Redis command carries. Default 1000.
	Chunk int
	// Retention is how long after its end a sale is still kept loaded, audited
	// and relayed: late cancellations, returns and retries go on until then. Then
	// its memory in Redis is freed. Default 24h.
	Retention time.Duration
	// RelayPage is how many outbox batches, or givebacks, are read at a time.
	// Default 100, at most 1000.
	RelayPage int
	// Now tells the time by which sales are over and windows end. Default time.Now.
	Now func() time.Time
}

// Delays between attempts of a run and between looks at a held lease.
const (
	retryBase = 50 * time.Millisecond
	retryMax  = time.Second
)

// publishAttempts bounds the tries to publish one outbox batch in one look.
const publishAttempts = 20

func (c *Config) withDefaults() error {
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, d := range []struct {
		name        string
		value       *time.Duration
		preset      time.Duration
		least, most time.Duration
	}{
		{"AuditInterval", &c.AuditInterval, 30 * time.Second, 10 * time.Millisecond, 24 * time.Hour},
		{"DeepAuditInterval", &c.DeepAuditInterval, 10 * time.Minute, 10 * time.Millisecond, 24 * time.Hour},
		{"RelayInterval", &c.RelayInterval, time.Second, 10 * time.Millisecond, time.Hour},
		{"LeaseTTL", &c.LeaseTTL, 15 * time.Second, stream.LeaseTTLMin, 10 * time.Minute},
		{"WaitTimeout", &c.WaitTimeout, 30 * time.Second, time.Millisecond, time.Hour},
		{"PublishTimeout", &c.PublishTimeout, 5 * time.Second, time.Millisecond, time.Hour},
		{"StepTimeout", &c.StepTimeout, 5 * time.Minute, 10 * time.Millisecond, 24 * time.Hour},
		{"Retention", &c.Retention, 24 * time.Hour, time.Second, 365 * 24 * time.Hour},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if *d.value < d.least || *d.value > d.most {
			return fmt.Errorf("reconcile: %s must be %s to %s, not %s", d.name, d.least, d.most, *d.value)
		}
	}
	c.LeaseTTL = c.LeaseTTL.Round(time.Second) // the stream counts in whole seconds
	for _, n := range []struct {
		name         string
		value        *int
		preset, most int
	}{
		{"MaxAttempts", &c.MaxAttempts, 3, 100},
		{"Chunk", &c.Chunk, 1000, 100_000},
		{"RelayPage", &c.RelayPage, 100, ledger.PageMax},
	} {
		if *n.value == 0 {
			*n.value = n.preset
		}
		if *n.value < 1 || *n.value > n.most {
			return fmt.Errorf("reconcile: %s must be 1 to %d, not %d", n.name, n.most, *n.value)
		}
	}
	return nil
}

// loadable reports whether the sale belongs into Redis, and is to be audited and
// relayed. A draft does not yet; a sale that is over for longer than the retention, no
// more. One that was ended does until then: nothing is sold in it, and yet orders that
// are pending get their answer there, and cancellations and returns go on.
func (c *Config) loadable(s *sale.Sale, now time.Time) bool {
	return s.Status != sale.StatusDraft && now.Before(s.EndsAt.Add(c.Retention))
}
