package harness

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
	clusterLimit   = 30 * time.Second
)

// Cluster is a private Redis Cluster of three masters that share all slots.
type Cluster struct {
	// Nodes are its servers, in the order of their slots; each can be broken like any other.
	Nodes []*RedisServer
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// RedisCluster starts a cluster for this test and returns it when every node says cluster_state:ok.
func RedisCluster(t testing.TB, options ...RedisOption) *Cluster {
	t.Helper()
	cluster := &Cluster{}
	for range clusterMasters {
		cluster.Nodes = append(cluster.Nodes, startClusterNode(t, options))
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterLimit)
	defer cancel()
	for i, node := range cluster.Nodes {
		cluster.assignSlots(ctx, t, i, node)
	}
	cluster.waitUntilOK(t)
	return cluster
}

func startClusterNode(t testing.TB, options []RedisOption) *RedisServer {
	t.Helper()
	// The bus would listen on the node's port plus 10000, which nobody has reserved.
	bus := reservePort(t)
	return Redis(t, append([]RedisOption{
		WithConfig("cluster-enabled", "yes"),
		WithConfig("cluster-port", strconv.Itoa(bus.Number())),
		WithConfig("cluster-node-timeout", "2000"),
	}, options...)...)
}

// assignSlots gives node i its third of the slots and introduces it to the first node.
func (c *Cluster) assignSlots(ctx context.Context, t testing.TB, i int, node *RedisServer) {
	t.Helper()
	client := node.redis.Connect()
	defer client.Close()
	first, last := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
	if err := client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
		t.Fatalf("assign slots %d-%d: %v", first, last, err)
	}
	if i == 0 {
		return
	}
	// Each node needs its own epoch, or they would spend seconds agreeing on one.
	if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i).Err(); err != nil {
		t.Fatalf("set the configuration epoch of node %d: %v", i, err)
	}
	met := c.Nodes[0]
	if err := client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", met.redis.Port(), met.redis.Config("cluster-port")).Err(); err != nil {
		t.Fatalf("introduce node %d: %v", i, err)
	}
}

func (c *Cluster) waitUntilOK(t testing.TB) {
	t.Helper()
	for _, node := range c.Nodes {
		client := node.redis.Connect()
		defer client.Close()
		Eventually(t, clusterLimit, "cluster is formed", func() (bool, string) {
			ctx, cancel := context.WithTimeout(context.Background(), redisCallLimit)
			defer cancel()
			info, err := client.ClusterInfo(ctx).Result()
			if err != nil {
				return false, err.Error()
			}
			formed := strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", clusterMasters))
			return formed, info
		})
	}
}
