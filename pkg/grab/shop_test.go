package grab_test

import (
	"context"
	"maps"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/redis/go-redis/v9"
)

// shop is one sale on real servers and an engine that sells it.
type shop struct {
	redis  *harness.RedisServer
	nats   *harness.NATSServer
	store  *stock.Store
	minter *stock.Minter
	stream *stream.Stream
	engine *grab.Engine
	sale   *sale.Sale
	stop   func() // stops the engine and waits for it
}

func openShop(t *testing.T, units, perUser int64) *shop {
	t.Helper()
	s := &shop{redis: harness.Redis(t), nats: harness.NATS(t)}
	client := redis.NewClient(&redis.Options{
		Addr: s.redis.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true,
		ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond, DialTimeout: 300 * time.Millisecond,
	})
	t.Cleanup(func() { _ = client.Close() })
	s.store = stock.New(client)
	s.minter = stock.NewMinter(s.store)
	var err error
	s.stream, err = stream.Open(stream.Config{URL: s.nats.URL(), PublishTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stream.Close)
	if err := s.stream.AwaitTopology(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.sale = &sale.Sale{
		ID: harness.Name(t), Name: "test", Status: sale.StatusApproved, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		PaymentWindow: sale.Duration(time.Minute), PerUserLimit: perUser, Timezone: "UTC",
		Items: []sale.Item{{SKU: "A", Stock: units, PriceCents: 100}}, Revision: 1,
	}
	s.load(t, map[string]int64{"A": units})
	s.engine, s.stop = s.newEngine(t)
	return s
}

// newEngine starts another grab process on the shop's servers.
func (s *shop) newEngine(t *testing.T) (*grab.Engine, func()) {
	t.Helper()
	engine, err := grab.New(grab.Config{
		Process: grab.NewProcess(), PublishDeadline: 500 * time.Millisecond, SoldOutTTL: time.Minute,
	}, s.store, s.stream, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine.Put(s.sale)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	harness.Eventually(t, 5*time.Second, "the engine runs", func() (bool, string) { return engine.Ready(), "" })
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return engine, stop
}

// load restores the sale with these units left and nobody's grants, in a new
// generation, the way a reconciler does.
func (s *shop) load(t testing.TB, remaining map[string]int64) {
	t.Helper()
	ctx := t.Context()
	fence, err := s.stream.BeginGeneration(ctx, s.sale.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	era, err := s.minter.Era(ctx, s.sale.ID)
	if err != nil {
		t.Fatal(err)
	}
	err = s.store.BeginRestore(s.sale.ID, 100).Commit(ctx, stock.Target{
		Era: era, Generation: fence.Generation, Fence: fence.Seq, Remaining: remaining,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// grab asks for one unit and fails the test on anything but an outcome.
func (s *shop) grab(t *testing.T, user, key string) grab.Answer {
	t.Helper()
	a, err := s.engine.Grab(t.Context(), grab.Request{SaleID: s.sale.ID, User: user, Key: key})
	if err != nil {
		t.Errorf("grab of %s: %v", user, err)
	}
	return a
}

// inStream returns the grants in the stream by order id.
func (s *shop) inStream(t *testing.T) map[string]sale.Grant {
	t.Helper()
	found := map[string]sale.Grant{}
	status, err := s.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = s.stream.ReadGrants(t.Context(), s.sale.ID, 0, status.LastSeq, func(_ uint64, b sale.Batch) error {
		for _, g := range b.Grants {
			found[g.OrderID] = g
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inRedis returns the order ids of the grants in Redis.
func (s *shop) inRedis(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	if _, err := s.store.Owners(t.Context(), s.sale.ID, math.MaxInt64, func(id string) { found[id] = true }); err != nil {
		t.Fatal(err)
	}
	return found
}

// requireSettled waits until Redis and the stream hold the same grants and no
// outbox holds anything.
func (s *shop) requireSettled(t *testing.T, grants int) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, "every grant is in the stream and the outboxes are empty", func() (bool, string) {
		inRedis, inStream := s.inRedis(t), s.inStream(t)
		left := s.redis.Client().Keys(t.Context(), "*outbox:*").Val()
		same := maps.EqualFunc(inRedis, inStream, func(bool, sale.Grant) bool { return true })
		return same && len(inRedis) == grants && len(left) == 0,
			"redis " + itoa(len(inRedis)) + ", stream " + itoa(len(inStream)) + ", outboxes " + itoa(len(left))
	})
}

// restoreWith restores the sale with one grant and units left.
func (s *shop) restoreWith(t *testing.T, fence stream.Fence, g sale.Grant, left int64) {
	t.Helper()
	era, err := s.minter.Era(t.Context(), s.sale.ID)
	if err != nil {
		t.Fatal(err)
	}
	r := s.store.BeginRestore(s.sale.ID, 100)
	if err := r.Grant(t.Context(), g.OrderID, sale.AppendGrant(nil, &g)); err != nil {
		t.Fatal(err)
	}
	if err := r.Buyer(t.Context(), g.User, g.Units(), g.OrderID); err != nil {
		t.Fatal(err)
	}
	err = r.Commit(t.Context(), stock.Target{
		Era: era, Generation: fence.Generation, Fence: fence.Seq, Remaining: map[string]int64{"A": left},
	})
	if err != nil {
		t.Fatal(err)
	}
}
