package grab_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/nats-io/nats.go/jetstream"
)

// The headers RateLimit and RateLimit-Policy, as net/http spells them.
const (
	rateLimit       = "Ratelimit"
	rateLimitPolicy = "Ratelimit-Policy"
)

// grabs sends one grab over HTTP.
func (c *counter) grabs(t *testing.T, header http.Header) (int, http.Header, map[string]any) {
	t.Helper()
	return c.call(t, "POST", "/v1/sales/"+c.sale.ID+"/grabs", "", header)
}

// requireSlowed holds that an answer is a 429 by this policy, which says when to
// come again.
func requireSlowed(t *testing.T, status int, header http.Header, body map[string]any, policy string) {
	t.Helper()
	if status != http.StatusTooManyRequests || body["outcome"] != "rate_limited" || body["code"] != "rate_limited" || body["policy"] != policy {
		t.Fatalf("want to be slowed down by %s, got %d %v", policy, status, body)
	}
	if header.Get("Retry-After") == "" || header.Get(rateLimitPolicy) == "" {
		t.Errorf("slowed down by %s without saying more: %v", policy, header)
	}
}

// control changes the flow control the way the admin service does.
func (s *shop) control(t *testing.T, f stream.FlowControl) (revision uint64) {
	t.Helper()
	_, revision, err := s.stream.ChangeFlowControl(t.Context(), func(have *stream.FlowControl) error { *have = f; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestAUserWhoGrabsTooOftenHearsWhenToComeAgain(t *testing.T) {
	c := openCounter(t, config.GrabTuning{UserRate: 0.01, UserBurst: 2})
	for _, want := range []string{`"user";r=1;t=100`, `"user";r=0;t=100`} {
		status, header, body := c.grabs(t, as("ann", "Idempotency-Key", "k"))
		if status != http.StatusCreated {
			t.Fatalf("within the burst: %d %v", status, body)
		}
		if policy, got := header.Get(rateLimitPolicy), header.Get(rateLimit); policy != `"user";q=2;w=200` || got != want {
			t.Errorf("RateLimit-Policy %s, RateLimit %s, want %s", policy, got, want)
		}
	}
	status, header, body := c.grabs(t, as("ann", "Idempotency-Key", "k"))
	requireSlowed(t, status, header, body, "user")
	if after, got := header.Get("Retry-After"), header.Get(rateLimit); after != "100" || got != `"user";r=0;t=100` {
		t.Errorf("Retry-After %s, RateLimit %s", after, got)
	}
	if status, _, body := c.grabs(t, as("bob")); status != http.StatusCreated {
		t.Errorf("another user: %d %v", status, body)
	}
	if got := c.metric(t, "doorbuster_grab_rate_limited_total", "user"); got != 1 {
		t.Errorf("counted %v grabs slowed down", got)
	}
}

func TestWithoutRatesNothingIsSaidOfThem(t *testing.T) {
	c := openCounter(t, config.GrabTuning{})
	for range 50 {
		status, header, body := c.grabs(t, as("ann", "Idempotency-Key", "k"))
		if status != http.StatusCreated || header.Get(rateLimit) != "" || header.Get(rateLimitPolicy) != "" {
			t.Fatalf("%d %v %v", status, header, body)
		}
	}
}

func TestAnAddressThatGrabsTooOftenIsThatOfTheClientBehindATrustedProxy(t *testing.T) {
	tuning := config.GrabTuning{UserRate: 0.01, UserBurst: 1, IPRate: 0.01, IPBurst: 1}
	c := openShop(t, 10, 1).open(t, tuning, config.GrabFront{TrustedProxies: []string{"127.0.0.0/8", "::1"}})
	from := func(user string, forwarded ...string) (int, http.Header, map[string]any) {
		header := as(user)
		for _, list := range forwarded {
			header.Add("X-Forwarded-For", list)
		}
		return c.grabs(t, header)
	}
	status, header, body := from("ann", "203.0.113.1")
	if status != http.StatusCreated || header.Get(rateLimit) != `"user";r=0;t=100, "ip";r=0;t=100` {
		t.Fatalf("%d %v %v", status, header, body)
	}
	for _, lists := range [][]string{{"203.0.113.1"}, {"6.6.6.6, 203.0.113.1"}, {"6.6.6.6", "203.0.113.1:4711, 127.0.0.9"}} {
		status, header, body := from("bob", lists...)
		requireSlowed(t, status, header, body, "ip")
		if header.Get(rateLimit) != `"ip";r=0;t=100` {
			t.Errorf("RateLimit %s", header.Get(rateLimit))
		}
	}
	if status, _, body := from("bob", "2001:db8:0:1::1"); status != http.StatusCreated {
		t.Errorf("bob has not used his own rate up: %d %v", status, body)
	}
	status, header, body = from("cat", "2001:db8:0:1:ffff::2")
	requireSlowed(t, status, header, body, "ip") // the same /64

	addresses := map[string]string{}
	for _, g := range c.inStream(t) {
		addresses[g.User] = g.IP
	}
	if addresses["ann"] != "203.0.113.1" || addresses["bob"] != "2001:db8:0:1::1" {
		t.Errorf("the grants were made from %v", addresses)
	}
}

func TestNobodyIsBelievedAboutAddressesWhoIsNoTrustedProxy(t *testing.T) {
	c := openCounter(t, config.GrabTuning{IPRate: 0.01, IPBurst: 1})
	if status, _, body := c.grabs(t, as("ann", "X-Forwarded-For", "203.0.113.1")); status != http.StatusCreated {
		t.Fatalf("%d %v", status, body)
	}
	for _, header := range []http.Header{
		as("bob"), as("bob", "X-Forwarded-For", "203.0.113.2"), as("bob", "Forwarded", "for=203.0.113.2"), as("bob", "X-Real-Ip", "203.0.113.2"),
	} {
		status, answer, body := c.grabs(t, header)
		requireSlowed(t, status, answer, body, "ip")
	}
}

func TestASaleThatDecidesAsManyAsItMaySaysSo(t *testing.T) {
	s := openShop(t, 100, 1)
	s.sale.RateLimit = 1
	c := s.open(t, config.GrabTuning{UserRate: 1000, UserBurst: 1000}, config.GrabFront{})
	for i := range 20 {
		status, header, body := c.grabs(t, as("user-"+itoa(i)))
		if status == http.StatusCreated {
			continue
		}
		requireSlowed(t, status, header, body, "sale")
		if got := header.Values(rateLimitPolicy); len(got) != 2 || got[0] != `"user";q=1000;w=1` || got[1] != `"sale";q=1;w=1` {
			t.Errorf("RateLimit-Policy %q", got)
		}
		if after, got := header.Get("Retry-After"), header.Get(rateLimit); after != "1" || got != `"sale";r=0;t=1` {
			t.Errorf("Retry-After %s, RateLimit %s", after, got)
		}
		if got := c.metric(t, "doorbuster_grab_rate_limited_total", "sale"); got != 1 {
			t.Errorf("counted %v grabs slowed down", got)
		}
		return
	}
	t.Error("20 grabs at once were decided at one per second")
}

// slows reports whether a fresh user's second grab is slowed down.
func (c *counter) slows(t *testing.T, user string) bool {
	t.Helper()
	c.grabs(t, as(user, "Idempotency-Key", "k"))
	status, _, _ := c.grabs(t, as(user, "Idempotency-Key", "k"))
	return status == http.StatusTooManyRequests
}

func TestAChangedFlowControlIsInForceEverywhereWithinASecond(t *testing.T) {
	s := openShop(t, 100_000, 1)
	first := s.open(t, config.GrabTuning{}, config.GrabFront{})
	processes := []*counter{first, s.serve(t, config.GrabTuning{}, config.GrabFront{})}
	users := 0
	var slowest time.Duration
	for round := range 10 {
		slowed := round%2 == 0
		f := stream.FlowControl{}
		if slowed {
			f.PerUser = &stream.Rate{Rate: 0.001, Burst: 1}
		}
		start := time.Now()
		revision := s.control(t, f)
		for i, c := range processes {
			harness.Eventually(t, time.Second, "process "+itoa(i)+" obeys", func() (bool, string) {
				users++
				return c.slows(t, "user-"+itoa(users)) == slowed, ""
			})
			if got := c.metric(t, "doorbuster_grab_flow_control_revision"); got != float64(revision) {
				t.Errorf("process %d says that revision %v is in force, not %d", i, got, revision)
			}
		}
		slowest = max(slowest, time.Since(start))
	}
	if slowest > time.Second {
		t.Errorf("the slowest change took %s", slowest)
	}
	t.Logf("in force in both processes within %s at most, probing included", slowest)
}

func TestTheFlowControlWinsOverTheConfigurationUntilItLetsGo(t *testing.T) {
	s := openShop(t, 100, 1)
	c := s.open(t, config.GrabTuning{UserRate: 0.001, UserBurst: 1}, config.GrabFront{})
	users := 0
	requireSlows := func(what string, want bool) {
		t.Helper()
		harness.Eventually(t, time.Second, what, func() (bool, string) {
			users++
			return c.slows(t, "user-"+itoa(users)) == want, ""
		})
	}
	requireSlows("the configuration holds", true)
	s.control(t, stream.FlowControl{PerUser: &stream.Rate{Rate: 0}})
	requireSlows("the flow control takes the limit away", false)
	s.control(t, stream.FlowControl{PerIP: &stream.Rate{Rate: 1000, Burst: 1000}})
	requireSlows("what the flow control leaves open is as configured", true)

	s.control(t, stream.FlowControl{PerUser: &stream.Rate{Rate: 1000, Burst: 1000}})
	requireSlows("a higher rate", false)
	js, err := jetstream.New(s.nats.Conn())
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), stream.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Delete(t.Context(), "flow"); err != nil {
		t.Fatal(err)
	}
	requireSlows("without flow control the configuration holds", true)
}

func TestTheGrabsInFlightAreBoundedByTheFlowControl(t *testing.T) {
	s := openShop(t, 10, 1)
	c := s.open(t, config.GrabTuning{}, config.GrabFront{})
	most := int64(1)
	revision := s.control(t, stream.FlowControl{InFlightMax: &most})
	harness.Eventually(t, time.Second, "the cap is in force", func() (bool, string) {
		return c.metric(t, "doorbuster_grab_flow_control_revision") == float64(revision), ""
	})
	s.redis.Pause()
	var held sync.WaitGroup
	held.Go(func() { c.service.Engine().Grab(t.Context(), grab.Request{SaleID: c.sale.ID, User: "ann"}) })
	harness.Eventually(t, 5*time.Second, "a grab is in flight", func() (bool, string) {
		return c.metric(t, "doorbuster_grab_in_flight") == 1, ""
	})
	status, header, body := c.grabs(t, as("bob"))
	if status != http.StatusServiceUnavailable || body["reason"] != "too many requests in flight" || header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %v", status, body)
	}
	s.redis.Resume()
	held.Wait()
	harness.Eventually(t, 10*time.Second, "the next one is decided", func() (bool, string) {
		status, _, _ := c.grabs(t, as("bob", "Idempotency-Key", "k"))
		return status == http.StatusCreated, ""
	})
}

// maxTries bounds how often a client comes again.
const maxTries = 10_000

func TestACrowdBuysExactlyTheStockWhileTheFlowControlChanges(t *testing.T) {
	s := openShop(t, 100, 1)
	c := s.open(t, config.GrabTuning{}, config.GrabFront{})
	other := s.serve(t, config.GrabTuning{}, config.GrabFront{})
	var crowd, operator sync.WaitGroup
	over := make(chan struct{})
	operator.Go(func() {
		for i := int64(1); ; i++ {
			select {
			case <-over:
				return
			default:
			}
			most := 50 + i%50
			s.control(t, stream.FlowControl{
				PerUser: &stream.Rate{Rate: float64(1 + i%20), Burst: 1 + i%3}, PerIP: &stream.Rate{Rate: float64(100 * i), Burst: 100}, InFlightMax: &most,
			})
		}
	})
	var mu sync.Mutex
	outcomes := map[any]int{}
	for i := range 300 {
		crowd.Go(func() {
			for side := i; side < i+maxTries; side++ {
				_, _, body := []*counter{c, other}[side%2].grabs(t, as("user-"+itoa(i), "Idempotency-Key", "k"))
				outcome := body["outcome"]
				if outcome == "rate_limited" || outcome == "unavailable" {
					continue
				}
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
				return
			}
		})
	}
	crowd.Wait()
	close(over)
	operator.Wait()
	if outcomes[string(sale.Won)] != 100 || outcomes[string(sale.SoldOut)] != 200 {
		t.Errorf("outcomes %v, want 100 won and 200 sold out", outcomes)
	}
	s.requireSettled(t, 100)
}
