package stock_test

import (
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/redis/go-redis/v9"
)

// The development default has no redis-server: the same sale goes the same way on
// both, raw keys included.
func TestSaleGoesTheSameWayOnTheEmbeddedServer(t *testing.T) {
	embedded := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = embedded.Close() })
	for name, client := range map[string]redis.UniversalClient{
		"redis-server": harness.Redis(t).Client(), "miniredis": embedded,
	} {
		t.Run(name, func(t *testing.T) { sellEverything(t, client) })
	}
}

func sellEverything(t *testing.T, client redis.UniversalClient) {
	s := openTill(t, client, map[string]int64{"A": 3, "B": -1})
	s.grab("W A(ann1) L(0) W", 1, "ann ann1 A:1", "ann ann2 A:1", "bob bob1 A:3", "bob bob2 B:1")
	d := s.grab("R(p1/1) W L(0) S(A)", 2, "ann ann1 A:1", "cid cid1 A:1 B:1", "dan dan1 A:3", "dan dan2 A:2")
	s.requireBody(d, "1/7/2/p1 cid1 ann1")
	s.release("cancel:ann1", "ann ann1 A:1")
	s.release("cancel:ann1", "ann ann1 A:1")
	s.release("return:cid1", "cid cid1 B:1")
	s.grab("W W", 0, "- adj1 A:1", "ann ann3 A:1")
	s.trim(stock.Trim{Through: 2, Durable: true}, 1)
	s.trim(stock.Trim{Bar: 9}, 1)
	if _, err := s.store.Grab(t.Context(), s.batch(1, "eve eve1 A:1")); !errors.Is(err, stock.ErrBarred) {
		t.Fatalf("got %v, want ErrBarred", err)
	}
	s.requireFound("ann1", true)
	s.requireFound("ann3", false)
	s.requireKeys(
		"applied hash cancel:ann1=1, return:cid1=1",
		"buyers hash ann=1 ann3, bob=1 bob2, cid=1 cid1",
		"grants hash adj1=p1 3|a adj1  A:1, ann1=p1 1|g ann1 ann A:1, ann3=p1 3|g ann3 ann A:1, bob2=p1 1|g bob2 bob B:1, cid1=p1 2|g cid1 cid A:1 B:1",
		"meta hash applied=2, buyers=3, era=ERA, fence=7, gen=1, grants=5",
		"outbox:p1 list 1/7/3/p1 adj1 ann3",
		"outboxes hash p1=2 9",
		"stock:A string 0",
		"stock:B string -1",
	)

	if err := s.store.Close(t.Context(), s.id); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonNoState)
	s.number = 20
	s.restore(units(1), annBought)
	d = s.grab("R(-/0) W S(A)", 1, "ann ann1 A:1", "bob bob3 A:1", "cid cid2 A:1")
	s.requireBody(d, "2/8/21/p1 bob3")
	var older *stock.OlderGeneration
	if err := s.commit(s.store.BeginRestore(s.id, 1), 1, 7, units(9)); !errors.As(err, &older) {
		t.Fatalf("got %v, want OlderGeneration", err)
	}
	st := must(s.store.State(t.Context(), s.id, []string{"A"}))(t)
	if st.Generation != 2 || st.Buyers != 2 || st.Grants != 2 || st.Remaining["A"] != 0 {
		t.Errorf("state is %+v", st)
	}
	if err := s.client.Del(t.Context(), s.keys.Buyers()).Err(); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonDamaged)
	if err := s.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonNoState)
	s.restore(units(1))
	s.grab("W", 1, "ann ann9 A:1")
}

func TestEmbeddedServerDoesNotTellItsEvictionPolicy(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	if policy, err := stock.New(client).EvictionPolicy(t.Context()); !errors.Is(err, stock.ErrPolicyUnknown) {
		t.Errorf("got %q, %v, want ErrPolicyUnknown", policy, err)
	}
}
