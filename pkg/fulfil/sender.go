package fulfil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// Ledger is what a Sender needs of MySQL. A *ledger.Ledger has it.
type Ledger interface {
	DueHosts(ctx context.Context, after string, limit int) (hosts []string, next string, err error)
	ClaimDeliveries(ctx context.Context, host string, limit int, lease time.Duration) (ledger.Claims, error)
	Fulfil(ctx context.Context, d ledger.Delivery) error
	Postpone(ctx context.Context, d ledger.Delivery, next time.Time, why string) error
	GiveUp(ctx context.Context, d ledger.Delivery, why string) (ledger.DeliveryStatus, *sale.Giveback, error)
}

// Givebacks gives stock that the ledger has decided to come back to Redis.
type Givebacks interface {
	Return(ctx context.Context, g sale.Giveback) error
}

// Config bounds a Sender. A zero field takes its default.
type Config struct {
	// Keys sign each webhook. Without one the Sender waits and calls nobody.
	Keys [][]byte
	// Workers is how many calls of receivers that answer soon are under way at a
	// time, and as many to slow ones, 1 to 1000. Default 32.
	Workers int
	// PerHost is how many calls one receiver has at a time, 1 to 1000. Default 8.
	PerHost int
	// Timeout bounds one call, 10ms to 1m. Default 15s.
	Timeout time.Duration
	// SlowAfter is when a receiver that has not answered counts as slow, 1ms to 1m. Default 1s.
	SlowAfter time.Duration
	// RetryBase and RetryMax bound the delay after a failed call: it doubles, and half
	// of it is random. 1ms to 24h each, defaults 5s and 1h.
	RetryBase, RetryMax time.Duration
	// Poll is the pause between two looks for due deliveries, 1ms to 1m. Default 200ms.
	Poll time.Duration
	// HostsPage is how many receivers one look sees, 1 to ledger.PageMax; the next
	// look goes on with the others. Default 100.
	HostsPage int
	// RecordTimeout bounds writing what came of a call, 10ms to 1m. Default 10s.
	RecordTimeout time.Duration
	// DrainLimit is how long calls go on after Run's context has ended, 1ms to 1m. Default 5s.
	DrainLimit time.Duration
}

func (c Config) withDefaults() (Config, error) {
	for _, n := range []struct {
		name              string
		value             *int
		preset, low, high int
	}{
		{"Workers", &c.Workers, 32, 1, 1000},
		{"PerHost", &c.PerHost, 8, 1, 1000},
		{"HostsPage", &c.HostsPage, 100, 1, ledger.PageMax},
	} {
		if *n.value == 0 {
			*n.value = n.preset
		}
		if *n.value < n.low || *n.value > n.high {
			return c, fmt.Errorf("fulfil: %s must be %d to %d", n.name, n.low, n.high)
		}
	}
	for _, d := range []struct {
		name              string
		value             *time.Duration
		preset, low, high time.Duration
	}{
		{"Timeout", &c.Timeout, 15 * time.Second, 10 * time.Millisecond, time.Minute},
		{"SlowAfter", &c.SlowAfter, time.Second, time.Millisecond, time.Minute},
		{"RetryBase", &c.RetryBase, 5 * time.Second, time.Millisecond, 24 * time.Hour},
		{"RetryMax", &c.RetryMax, time.Hour, time.Millisecond, 24 * time.Hour},
		{"Poll", &c.Poll, 200 * time.Millisecond, time.Millisecond, time.Minute},
		{"RecordTimeout", &c.RecordTimeout, 10 * time.Second, 10 * time.Millisecond, time.Minute},
		{"DrainLimit", &c.DrainLimit, 5 * time.Second, time.Millisecond, time.Minute},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if *d.value < d.low || *d.value > d.high {
			return c, fmt.Errorf("fulfil: %s must be %s to %s", d.name, d.low, d.high)
		}
	}
	if c.RetryMax < c.RetryBase {
		return c, errors.New("fulfil: RetryMax must be at least RetryBase")
	}
	return c, nil
}

// lease is how long a claimed delivery is ours: time for the call and for writing
// what came of it. It is over before anybody calls again.
func (c Config) lease() time.Duration { return c.Timeout + c.RecordTimeout }

// Parts is what a Sender is made of. All but Changed are required.
type Parts struct {
	Ledger    Ledger
	Givebacks Givebacks
	Metrics   *telemetry.WebhookMetrics
	Log       *slog.Logger
	// Changed is told the ids of orders that have changed.
	Changed func(orderID string)
}

// Sender calls the shop's systems. Any number of Senders, in any number of
// processes, share the deliveries; the bounds are those of each process.
type Sender struct {
	Parts
	cfg    Config
	caller *caller
	hosts  *hosts

	after string        // where the next look begins
	wake  chan struct{} // a call is over
}

// New returns a Sender; Run starts it.
func New(cfg Config, parts Parts) (*Sender, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	keys, err := newSigner(cfg.Keys)
	if err != nil {
		return nil, err
	}
	if parts.Changed == nil {
		parts.Changed = func(string) {}
	}
	return &Sender{
		Parts: parts, cfg: cfg, caller: newCaller(keys, cfg.Timeout, cfg.PerHost),
		hosts: newHosts(cfg.Workers, cfg.PerHost, cfg.SlowAfter), wake: make(chan struct{}, 1),
	}, nil
}

// Run sends until ctx ends and the calls in hand are over, DrainLimit later at most.
func (s *Sender) Run(ctx context.Context) error {
	if len(s.cfg.Keys) == 0 {
		s.Log.InfoContext(ctx, "no webhook secrets: webhooks of sales with a fulfilment wait")
		<-ctx.Done()
		return nil
	}
	defer s.caller.close()
	calling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.DrainLimit, stop) })()
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	for {
		done, err := s.runOnce(ctx, func(d *ledger.Delivery, c *call, of claim) {
			calls.Go(func() { s.attempt(calling, d, c, of) })
		})
		if err != nil && ctx.Err() == nil {
			s.Metrics.Failures.Inc()
			s.Log.WarnContext(ctx, "due webhooks not found", "error", err)
		}
		s.Metrics.Ended.Of(string(ledger.DeliveryDropped)).Add(float64(done.dropped))
		for _, d := range done.parked {
			s.Metrics.Ended.Of(string(ledger.DeliveryParked)).Inc()
			s.Log.ErrorContext(ctx, "webhook parked: its order can't be read", "order_id", d.OrderID, "host", d.Host, "error", d.LastError)
		}
		under, slowHosts := s.hosts.count()
		s.Metrics.InFlight.Set(float64(under))
		s.Metrics.SlowHosts.Set(float64(slowHosts))
		wake := s.wake
		if !done.bounded {
			wake = nil // nothing waits for a call to end
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C:
		}
	}
}

// pass is what one look did.
type pass struct {
	begun   int               // calls
	dropped int               // deliveries whose orders had ended
	parked  []ledger.Delivery // whose orders can't be read
	bounded bool              // more may be due than the bounds allow
}

// claim is when deliveries were claimed. What is due is judged by the database's
// clock, which this process's may differ from; time that passes is measured here.
type claim struct {
	asked, got time.Time // by our clock
	at         time.Time // by the database's, in between
}

// now is not after what the database's clock says.
func (c claim) now() time.Time { return c.at.Add(time.Since(c.got)) }

// runOnce claims what is due and may be called now, and has begin make each call.
// What fails for one receiver keeps no other waiting.
func (s *Sender) runOnce(ctx context.Context, begin func(*ledger.Delivery, *call, claim)) (pass, error) {
	var done pass
	due, next, err := s.Ledger.DueHosts(ctx, s.after, s.cfg.HostsPage)
	if err != nil {
		return done, err
	}
	s.after = next
	var failed []error
	for _, name := range due {
		n := s.hosts.free(name)
		if n == 0 {
			done.bounded = true
			continue
		}
		of := claim{asked: time.Now()}
		claims, err := s.Ledger.ClaimDeliveries(ctx, name, min(n, ledger.PageMax), s.cfg.lease())
		if err != nil {
			failed = append(failed, fmt.Errorf("receiver %s: %w", name, err))
			continue
		}
		of.got, of.at = time.Now(), claims.At
		done.dropped += claims.Dropped
		done.parked = append(done.parked, claims.Parked...)
		done.begun += len(claims.Deliveries)
		done.bounded = done.bounded || len(claims.Deliveries)+claims.Dropped+len(claims.Parked) == n
		for i := range claims.Deliveries {
			begin(&claims.Deliveries[i], s.hosts.begin(name), of)
		}
	}
	return done, errors.Join(failed...)
}
