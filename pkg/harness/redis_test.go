package harness

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestKilledRedisForgetsAndComesBackOnItsPort(t *testing.T) {
	server := Redis(t)
	client := server.Client()
	addr := server.Addr()
	must(t, client.Set(t.Context(), "key", "value", 0).Err())

	server.Kill()
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	server.Start()

	if server.Addr() != addr {
		t.Fatalf("address changed from %s to %s", addr, server.Addr())
	}
	if n := client.Exists(t.Context(), "key").Val(); n != 0 {
		t.Fatalf("key survived without an append-only file")
	}
}

func TestRedisWithAOFRemembersAfterSIGKILL(t *testing.T) {
	server := Redis(t, WithAOF())
	client := server.Client()
	must(t, client.Set(t.Context(), "key", "value", 0).Err())

	server.Kill()
	server.Start()

	got, err := client.Get(t.Context(), "key").Result()
	must(t, err)
	if got != "value" {
		t.Fatalf("key is %q after the restart", got)
	}
}

func TestRedisNeverEvicts(t *testing.T) {
	got, err := Redis(t).Client().ConfigGet(t.Context(), "maxmemory-policy").Result()
	must(t, err)
	if got["maxmemory-policy"] != "noeviction" {
		t.Fatalf("maxmemory-policy is %v", got)
	}
}

func TestPausedRedisIsSilentUntilItIsResumed(t *testing.T) {
	server := Redis(t)
	client := server.Client()
	must(t, client.Ping(t.Context()).Err())

	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); err == nil {
		t.Fatal("a paused server answered")
	}
	server.Resume()

	must(t, client.Ping(t.Context()).Err())
}

func TestReplicaFollowsAndCanBePromoted(t *testing.T) {
	leader := Redis(t)
	must(t, leader.Client().Set(t.Context(), "before", "1", 0).Err())
	replica := Redis(t, ReplicaOf(leader))
	client := replica.Client()
	if got := client.Get(t.Context(), "before").Val(); got != "1" {
		t.Fatalf("replica was returned before its first copy: %q", got)
	}

	must(t, leader.Client().Set(t.Context(), "after", "2", 0).Err())
	Eventually(t, 5*time.Second, "replica follows", func() (bool, string) {
		got := client.Get(t.Context(), "after").Val()
		return got == "2", got
	})

	leader.Kill()
	replica.Promote()
	must(t, client.Set(t.Context(), "promoted", "3", 0).Err())

	leader.Start()
	leader.Follow(replica)
	if got := leader.Client().Get(t.Context(), "promoted").Val(); got != "3" {
		t.Fatalf("the old leader did not copy the new one: %q", got)
	}
}

func TestClusterServesKeysOfAllSlots(t *testing.T) {
	cluster := RedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer client.Close()

	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		must(t, client.Set(t.Context(), key, key, 0).Err())
	}

	total := int64(0)
	for _, node := range cluster.Nodes {
		size := node.Client().DBSize(t.Context()).Val()
		if size == 0 || size == 8 {
			t.Errorf("node %s holds %d of 8 keys: slots are not shared", node.Addr(), size)
		}
		total += size
	}
	if total != 8 {
		t.Errorf("nodes hold %d keys, want 8", total)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
