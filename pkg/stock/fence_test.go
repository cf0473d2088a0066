package stock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// requireRestorable requires the sale to sell again once it is restored.
func (s *till) requireRestorable() {
	s.t.Helper()
	s.restore(units(2))
	s.grab("W W S(A)", 0, "yan yan1 A:1", "yan yan2 A:1", "yan yan3 A:1")
}

// at moves the till to another server, with nothing remembered.
func (s *till) at(server *harness.RedisServer) {
	s.client = server.Client()
	s.store = stock.New(s.client)
	s.minter = stock.NewMinter(s.store)
}

// awaitReplica waits until one replica has everything the till wrote.
func (s *till) awaitReplica() {
	s.t.Helper()
	if n := must(s.client.Do(s.t.Context(), "WAIT", 1, 5000).Int64())(s.t); n != 1 {
		s.t.Fatalf("%d replicas are in step", n)
	}
}

func TestPromotedReplicaRefusesItsFirstGrab(t *testing.T) {
	leader := harness.Redis(t)
	replica := harness.Redis(t, harness.ReplicaOf(leader))
	s := openTill(t, leader.Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	s.awaitReplica()
	leader.Kill()
	replica.Promote()
	s.at(replica)
	s.requireRefused(stock.ReasonNewServer)
	s.requireRestorable()
}

// repromote leaves the till on a master A that sold 5 units, then lost 3 of these
// sales: its replica B followed the first 2 only, was promoted, and became A's
// master for a while. A still has its scripts, and B's copy of the meta.
func repromote(t *testing.T, open func(*till)) *till {
	t.Helper()
	a := harness.Redis(t)
	b := harness.Redis(t, harness.ReplicaOf(a))
	s := openTill(t, a.Client(), units(5))
	open(s)
	s.grab("W W", 1, "ann ann1 A:1", "bob bob1 A:1")
	s.awaitReplica()
	b.Promote()
	s.grab("W W W S(A)", 1, "cid cid1 A:1", "dan dan1 A:1", "eve eve1 A:1", "fay fay1 A:1")
	a.Follow(b)
	a.Promote()

	if exists := must(s.client.ScriptExists(t.Context(), lua.In(s.era).Grab.SHA).Result())(t); !exists[0] {
		t.Fatal("A lost its scripts: this is not the case to be tested")
	}
	if era := must(s.client.HGet(t.Context(), s.keys.Meta(), "era").Result())(t); era != string(s.era) {
		t.Fatalf("A's meta is of era %s, not %s: this is not the case to be tested", era, s.era)
	}
	if left := must(s.client.Get(t.Context(), s.keys.Stock("A")).Result())(t); left != "3" {
		t.Fatalf("A has %s units, not the 3 of B: this is not the case to be tested", left)
	}
	return s
}

func TestRepromotedMasterThatLostSalesRefusesItsFirstGrab(t *testing.T) {
	s := repromote(t, func(*till) {})
	s.requireRefused(stock.ReasonMoved)
	_, err := s.store.State(t.Context(), s.id, nil)
	requireReason(t, err, stock.ReasonMoved)
	requireReason(t, s.store.Release(t.Context(), s.giveback("cancel:ann1", "ann ann1 A:1")), stock.ReasonMoved)
	s.requireRestorable()
}

// The control of the test above: with an era that does not know its server's
// master_replid, the same master sells what was sold before.
func TestOnlyTheReplicationIDTellsARepromotedMaster(t *testing.T) {
	s := repromote(t, func(s *till) {
		s.era = lua.NewEra("")
		for _, script := range lua.In(s.era).All() {
			if err := s.client.ScriptLoad(t.Context(), script.Source).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.commit(s.store.BeginRestore(s.id, 1), 2, 8, units(5)); err != nil {
			t.Fatal(err)
		}
	})
	s.grab("W W W", 1, "cid cid2 A:1", "gus gus1 A:1", "hal hal1 A:1")
}

func TestDemotedMasterRefusesAtOnce(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	// A leader that is not there: no copy begins, and the replication id stays.
	demote := func(host, port string) {
		if err := s.client.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	demote("127.0.0.1", "1")
	s.requireRefused(stock.ReasonMoved)
	if _, err := s.minter.Era(t.Context(), s.id); err == nil {
		t.Error("minted an era on a replica")
	}
	demote("NO", "ONE")
	s.requireRefused(stock.ReasonMoved)
	s.requireRestorable()
}

// Redis gives a master another replication id with its first replica, and when it
// has been without any for repl-backlog-ttl. Nothing is lost then; the fence can't
// tell, and asks for a restore.
func TestFirstReplicaAndTheEndOfTheBacklogCostARestore(t *testing.T) {
	leader := harness.Redis(t, harness.WithConfig("repl-backlog-ttl", "1"))
	s := openTill(t, leader.Client(), units(5))
	first := harness.Redis(t, harness.ReplicaOf(leader))
	s.requireRefused(stock.ReasonMoved)
	s.requireRestorable()

	second := harness.Redis(t, harness.ReplicaOf(leader))
	first.Kill()
	s.grab("S(A)", 1, "ann ann1 A:1")

	second.Kill()
	harness.Eventually(t, 30*time.Second, "the backlog ends", func() (bool, string) {
		_, err := s.store.State(t.Context(), s.id, nil)
		return err != nil, "still trusted"
	})
	s.requireRefused(stock.ReasonMoved)
	s.requireRestorable()
}

func TestRestartRefusesWithAndWithoutData(t *testing.T) {
	for name, c := range map[string]struct {
		options []harness.RedisOption
		reason  string
	}{
		"append-only file": {[]harness.RedisOption{harness.WithAOF()}, stock.ReasonNewServer},
		"nothing kept":     {nil, stock.ReasonNoState},
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.Redis(t, c.options...)
			s := openTill(t, server.Client(), units(5))
			s.grab("W", 1, "ann ann1 A:1")
			server.Kill()
			server.Start()
			harness.Eventually(t, 5*time.Second, "connected again", func() (bool, string) {
				err := s.store.Ping(t.Context())
				return err == nil, "no answer"
			})
			s.requireRefused(c.reason)
			s.requireRestorable()
		})
	}
}

func TestFlushedServerRefuses(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	if err := s.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonNoState)
	s.requireRestorable()
}

func TestFlushedScriptsRefuse(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonNewServer)
	s.requireRestorable()
}

func TestClosedSaleRefuses(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	if err := s.store.Close(t.Context(), s.id); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonNoState)
	s.requireRestorable()
}

func TestSaleThatWasNeverLoadedRefuses(t *testing.T) {
	store := stock.New(harness.Redis(t).Client())
	b := stock.Batch{SaleID: "never", Process: process, Number: 1, Asks: []stock.Ask{ask("ann ann1 A:1")}}
	_, err := store.Grab(t.Context(), b)
	requireReason(t, err, stock.ReasonNoState)
	if err := store.Close(t.Context(), "never"); err != nil {
		t.Fatal(err)
	}
}

func TestLossOfAnySingleKeyRefuses(t *testing.T) {
	server := harness.Redis(t)
	for name, key := range map[string]func(stock.Keys) string{
		"buyers":  stock.Keys.Buyers,
		"grants":  stock.Keys.Grants,
		"applied": stock.Keys.Applied,
		"stock":   func(k stock.Keys) string { return k.Stock("A") },
	} {
		t.Run(name, func(t *testing.T) {
			s := openTill(t, server.Client(), units(5))
			s.grab("W W", 1, "ann ann1 A:1", "bob bob1 A:1")
			s.release("cancel:bob1", "bob bob1 A:1")
			if n := must(s.client.Del(t.Context(), key(s.keys)).Result())(t); n != 1 {
				t.Fatalf("deleted %d keys", n)
			}
			s.requireRefused(stock.ReasonDamaged)
			requireReason(t, s.store.Release(t.Context(), s.giveback("cancel:ann1", "ann ann1 A:1")), stock.ReasonDamaged)
			s.requireRestorable()
		})
	}
}

func TestLossOfASingleEntryRefuses(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W W", 1, "ann ann1 A:1", "bob bob1 A:1")
	if err := s.client.HDel(t.Context(), s.keys.Buyers(), "ann").Err(); err != nil {
		t.Fatal(err)
	}
	s.requireRefused(stock.ReasonDamaged)
}

func TestStoreFollowsARestoreInAnotherEraByItself(t *testing.T) {
	server := harness.Redis(t)
	s := openTill(t, server.Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	old := s.era

	other := *s
	other.at(server)
	other.restore(units(1), annBought)
	if other.era == old {
		t.Fatal("another reconciler minted the same era")
	}

	keys := []string{s.keys.Meta(), s.keys.Buyers(), s.keys.Grants(), s.keys.Applied()}
	reply := must(s.client.EvalSha(t.Context(), lua.In(old).Inspect.SHA, keys).StringSlice())(t)
	if len(reply) != 2 || reply[1] != stock.ReasonOtherEra {
		t.Fatalf("a script of the old era answers %v", reply)
	}
	s.grab("A(ann1) W S(A)", 1, "ann ann2 A:1", "bob bob1 A:1", "cid cid1 A:1")
}

func TestStoresFollowEveryRestoreWhileTheySell(t *testing.T) {
	server := harness.Redis(t)
	s := openTill(t, server.Client(), units(sale.Unlimited))
	const sellers, batches = 4, 200
	done := make(chan error, sellers)
	for i := range sellers {
		store := stock.New(server.Client())
		go func() { done <- sell(t.Context(), store, s.id, fmt.Sprintf("seller%d", i), batches) }()
	}
	for finished := 0; finished < sellers; {
		select {
		case err := <-done:
			finished++
			if err != nil {
				t.Error(err)
			}
		default:
			next := *s
			next.at(server) // another reconciler: another era
			next.restore(units(sale.Unlimited))
			s.gen, s.fence = next.gen, next.fence
		}
	}
}

// sell makes this many batches. It may be refused once per restore, when two of
// them fall between its look at the era and its call.
func sell(ctx context.Context, store *stock.Store, saleID, by string, batches int) error {
	for n := 1; n <= batches; {
		b := stock.Batch{SaleID: saleID, Process: by, Number: uint64(n)}
		b.Asks = []stock.Ask{ask(fmt.Sprintf("%s %s-%d A:1", by, by, n))}
		_, err := store.Grab(ctx, b)
		var refused *stock.NotLoaded
		switch {
		case err == nil:
			n++
		case !errors.As(err, &refused) || refused.Reason != stock.ReasonOtherEra:
			return err
		}
	}
	return nil
}
