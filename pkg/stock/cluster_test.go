package stock_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/redis/go-redis/v9"
)

// clusterClient connects the way the services do.
func clusterClient(t *testing.T, c *harness.Cluster, timeout time.Duration) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: c.Addrs(), IsClusterMode: true, MaxRetries: -1, ReadTimeout: timeout, WriteTimeout: timeout,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// homes returns the clients of the nodes: the one that holds the sale, then the
// others.
func (s *till) homes(c *harness.Cluster) (home *redis.Client, others []*redis.Client) {
	s.t.Helper()
	owner := must(s.client.(*redis.ClusterClient).MasterForKey(s.t.Context(), s.keys.Meta()))(s.t)
	for _, node := range c.Nodes {
		if client := node.Client(); node.Addr() == owner.Options().Addr {
			home = client
		} else {
			others = append(others, client)
		}
	}
	return home, others
}

func TestSaleLivesOnOneShardOfACluster(t *testing.T) {
	cluster := harness.RedisCluster(t)
	client := clusterClient(t, cluster, 5*time.Second)
	for range 4 { // random ids: several shards
		s := openTill(t, client, map[string]int64{"A": 3, "B": -1})
		s.grab("W W A(ann1)", 1, "ann ann1 A:1", "bob bob1 B:1", "ann ann2 A:1")
		s.release("cancel:bob1", "bob bob1 B:1")
		s.trim(stock.Trim{Through: 1, Durable: true}, 0)
		s.requireFound("ann1", true)
		s.requireKeys(
			"applied hash cancel:bob1=1",
			"buyers hash ann=1 ann1, bob=0 bob1",
			"grants hash ann1=p1 1|g ann1 ann A:1, bob1=p1 1|g bob1 bob B:1",
			"meta hash applied=1, buyers=2, era=ERA, fence=7, gen=1, grants=2",
			"outboxes hash p1=1 0",
			"stock:A string 2",
			"stock:B string -1",
		)
		home, others := s.homes(cluster)
		sha := lua.In(s.era).Grab.SHA
		if exists := must(home.ScriptExists(t.Context(), sha).Result())(t); !exists[0] {
			t.Error("the era is not loaded where the sale lives")
		}
		for _, other := range others {
			if exists := must(other.ScriptExists(t.Context(), sha).Result())(t); exists[0] {
				t.Error("the era is loaded where the sale does not live")
			}
			if keys := scan(t, other, s.prefix()+"*"); len(keys) != 0 {
				t.Errorf("keys on another shard: %v", keys)
			}
		}
	}
}

func TestSaleWhoseSlotMovedIsRefusedThenRestorable(t *testing.T) {
	cluster := harness.RedisCluster(t)
	s := openTill(t, clusterClient(t, cluster, 5*time.Second), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	from, others := s.homes(cluster)
	to := others[0]
	s.moveSlot(t, from, to)
	s.requireRefused(stock.ReasonNewServer)
	s.requireRestorable()

	// And back: the first home still has the scripts of the first era.
	if exists := must(from.ScriptExists(t.Context(), lua.In(s.era).Grab.SHA).Result())(t); exists[0] {
		t.Fatal("two servers share an era")
	}
	s.moveSlot(t, to, from)
	s.requireRefused(stock.ReasonNewServer)
	s.requireRestorable()
}

// moveSlot moves the sale's slot with its keys, as a resharding does.
func (s *till) moveSlot(t *testing.T, from, to *redis.Client) {
	t.Helper()
	ctx := t.Context()
	do := func(c *redis.Client, args ...any) string {
		t.Helper()
		return must(c.Do(ctx, args...).Text())(t)
	}
	slot := must(from.ClusterKeySlot(ctx, s.keys.Meta()).Result())(t)
	source, target := do(from, "CLUSTER", "MYID"), do(to, "CLUSTER", "MYID")
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	move := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
	for _, key := range scan(t, from, s.prefix()+"*") {
		move = append(move, key)
	}
	do(from, move...)
	for _, node := range []*redis.Client{to, from} {
		do(node, "CLUSTER", "SETSLOT", slot, "NODE", target)
	}
	cluster := s.client.(*redis.ClusterClient)
	harness.Eventually(t, 10*time.Second, "the client knows the slot's new home", func() (bool, string) {
		cluster.ReloadState(ctx)
		owner, err := cluster.MasterForKey(ctx, s.keys.Meta())
		return err == nil && owner.Options().Addr == to.Options().Addr, "not yet"
	})
}

// A Cluster client repeats a command whose answer is late, even with MaxRetries
// -1. A grab that was decided twice under one number would stand on the outbox
// twice under one message id.
func TestScriptIsSentOnceWhenItsAnswerIsLate(t *testing.T) {
	const late = 200 * time.Millisecond
	t.Run("cluster", func(t *testing.T) {
		cluster := harness.RedisCluster(t)
		s := openTill(t, clusterClient(t, cluster, late), units(5))
		home, _ := s.homes(cluster)
		for _, node := range cluster.Nodes {
			if node.Addr() == home.Options().Addr {
				s.requireSentOnce(t, node)
			}
		}
	})
	t.Run("one server", func(t *testing.T) {
		server := harness.Redis(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: 3, ReadTimeout: late})
		t.Cleanup(func() { _ = client.Close() })
		openTill(t, client, units(5)).requireSentOnce(t, server)
	})
}

// openConnections fills the client's pool: a frozen server takes nothing on a new
// connection.
func (s *till) openConnections(n int) {
	s.t.Helper()
	done := make(chan error, n)
	for range n {
		go func() { done <- s.client.Do(s.t.Context(), "BLPOP", s.prefix()+"nothing", "0.1").Err() }()
	}
	for range n {
		if err := <-done; !errors.Is(err, redis.Nil) {
			s.t.Fatal(err)
		}
	}
}

// requireSentOnce freezes the sale's server during a grab and requires the script
// to run once.
func (s *till) requireSentOnce(t *testing.T, server *harness.RedisServer) {
	t.Helper()
	direct := server.Client()
	calls := func() int {
		t.Helper()
		stats := must(direct.Info(t.Context(), "commandstats").Result())(t)
		_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
		count, _, _ := strings.Cut(rest, ",")
		return must(strconv.Atoi(count))(t)
	}
	s.grab("W", 1, "ann ann1 A:1")
	s.openConnections(4)
	before := calls()
	server.Pause()
	_, err := s.store.Grab(t.Context(), s.batch(1, "bob bob1 A:1"))
	server.Resume()
	if err == nil {
		t.Fatal("a frozen server answered")
	}
	// What was sent meanwhile has been read by the time a later call is answered.
	harness.Eventually(t, 10*time.Second, "the late grab is decided", func() (bool, string) {
		n, err := direct.HExists(t.Context(), s.keys.Grants(), "bob1").Result()
		return n, strconv.FormatBool(err == nil)
	})
	if n := calls() - before; n != 1 {
		t.Errorf("the script ran %d times", n)
	}
	s.requireOutbox("1/7/2/p1 bob1", "1/7/1/p1 ann1")
}
