package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// newCluster starts three nats-servers in this process and returns their URL. What
// is tested with them is how replicated streams answer; what a SIGKILL leaves on
// disk is tested with servers in processes of their own.
func newCluster(t testing.TB) (clientURL string, nodes []*server.Server) {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 { // each must know all before it starts
		listener := get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		routes = append(routes, get[*url.URL](t)(url.Parse("nats://"+listener.Addr().String())))
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
		nodes = append(nodes, nil)
		must(t, listener.Close())
	}
	var urls []string
	for i := range nodes {
		nodes[i] = get[*server.Server](t)(server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i),
			Host:       "127.0.0.1",
			Port:       server.RANDOM_PORT,
			Cluster:    server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]},
			Routes:     routes,
			JetStream:  true,
			StoreDir:   harness.Folder(t, "nats"),
			NoLog:      true,
			NoSigs:     true,
		}))
		nodes[i].Start()
		t.Cleanup(func() { nodes[i].Shutdown(); nodes[i].WaitForShutdown() })
	}
	for _, node := range nodes {
		if !node.ReadyForConnections(wait) {
			t.Fatal("a server is not ready")
		}
		urls = append(urls, node.ClientURL())
	}
	harness.Eventually(t, wait, "the servers elect a leader", func() (bool, string) {
		for _, node := range nodes {
			if node.JetStreamIsLeader() && len(node.JetStreamClusterPeers()) == 3 {
				return true, ""
			}
		}
		return false, "no leader of three"
	})
	return strings.Join(urls, ","), nodes
}

func replicated(c *stream.Config) { c.Replicas = 3 }

func TestWithReplicas(t *testing.T) {
	clientURL, nodes := newCluster(t)
	s := openOnly(t, clientURL, replicated)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	must(t, s.AwaitTopology(ctx))

	t.Run("a lower setting takes no replica away", func(t *testing.T) {
		must(t, openOnly(t, clientURL).AwaitTopology(ctx))
		if status := get[stream.Status](t)(s.Info(ctx)); status.Replicas != 3 {
			t.Fatalf("%d replicas are left", status.Replicas)
		}
	})
	t.Run("a duplicate from before the fence is acknowledged", func(t *testing.T) {
		m := &maker{saleID: "s0", process: "p", fence: begin(t, s, "s0"), grants: 1}
		head, body := m.next()
		seq := get[uint64](t)(s.Publish(ctx, "s0", head, body))
		begin(t, s, "s0")
		if again := get[uint64](t)(s.Publish(ctx, "s0", head, body)); again != seq {
			t.Fatalf("stored at %d, and again at %d", seq, again)
		}
		head, body = m.next()
		_, err := s.Publish(ctx, "s0", head, body)
		wantError(t, err, stream.ErrFenced)
	})
	t.Run("nothing of the old generation passes a fence", func(t *testing.T) {
		raceWithFences(ctx, t, s, clientURL)
	})
	t.Run("full fetches lose nothing on the way", func(t *testing.T) {
		m := &maker{saleID: "s3", process: "p", fence: begin(t, s, "s3"), grants: 1}
		fill(t, s, m, 500)
		b := &inbox{}
		start := time.Now()
		consume(t, s, b.handle)
		settled(t, s)
		status := get[stream.Status](t)(s.Info(ctx))
		if uint64(len(b.all())) != status.Messages || time.Since(start) > 20*time.Second { // AckWait is 30s
			t.Fatalf("%d messages were delivered %d times in %v", status.Messages, len(b.all()), time.Since(start))
		}
	})
	t.Run("a lease has one holder and is renewed", func(t *testing.T) {
		l := acquire(t, s, "job")
		_, err := s.Acquire(ctx, "job", time.Second)
		wantError(t, err, stream.ErrHeld)
		must(t, l.Release(ctx))
		must(t, acquire(t, s, "job").Release(ctx))
	})
	t.Run("work goes on when a server is gone", func(t *testing.T) {
		m := &maker{saleID: "s2", process: "p", fence: begin(t, s, "s2"), grants: 1}
		m.publish(t, s)
		b := &inbox{}
		consume(t, s, b.handle)
		nodes[0].Shutdown()
		nodes[0].WaitForShutdown()
		head, body := m.next()
		harness.Eventually(t, wait, "a batch is acknowledged", func() (bool, string) {
			_, err := s.Publish(ctx, "s2", head, body)
			return err == nil, errText(err)
		})
		var fence stream.Fence
		harness.Eventually(t, wait, "a generation begins", func() (bool, string) {
			var err error
			fence, err = s.BeginGeneration(ctx, "s2", 1)
			return err == nil, errText(err)
		})
		harness.Eventually(t, wait, "the consumer sees it", func() (bool, string) { return b.deliveries(fence.Seq) > 0, "not seen" })
		if all := readAll(t, s, "s2"); len(all) != 2 {
			t.Fatalf("the stream holds %d batches, want 2", len(all))
		}
	})
}

// raceWithFences lets publishers of several nodes, which make each other busy, race
// with a reconciler.
func raceWithFences(ctx context.Context, t *testing.T, s *stream.Stream, clientURL string) {
	t.Helper()
	const rounds, publishers, each = 3, 4, 10
	nodes := make([]*stream.Stream, publishers)
	for i := range nodes {
		nodes[i] = openOnly(t, clientURL, replicated)
	}
	harness.Eventually(t, wait, "the nodes are connected", func() (bool, string) {
		for _, node := range nodes {
			if !node.Reachable() {
				return false, "not all"
			}
		}
		return true, ""
	})
	fence := begin(t, s, "s1")
	stored := 0
	for range rounds {
		started := make(chan struct{}, publishers)
		var running sync.WaitGroup
		var mu sync.Mutex
		for i, node := range nodes {
			m := &maker{saleID: "s1", process: string(rune('a' + i)), fence: fence, grants: 3}
			running.Go(func() {
				for {
					head, body := m.next()
					if err := publishUntilClear(ctx, node, "s1", head, body); err != nil {
						if !errors.Is(err, stream.ErrFenced) {
							t.Errorf("publish: %v", err)
						}
						return
					}
					mu.Lock()
					stored++
					mu.Unlock()
					if head.Number == each {
						started <- struct{}{}
					}
				}
			})
		}
		for range publishers {
			select {
			case <-started:
			case <-time.After(wait):
				t.Fatal("the publishers don't get on")
			}
		}
		fence = begin(t, s, "s1") // gets through although the sale is busy
		running.Wait()
	}
	all := readAll(t, s, "s1")
	var newest uint64
	for _, b := range all {
		if b.batch.Fence < newest {
			t.Fatalf("message %d of fence %d stands after one of fence %d", b.seq, b.batch.Fence, newest)
		}
		newest = max(newest, b.batch.Fence)
	}
	if len(all) != stored {
		t.Fatalf("%d batches were acknowledged, the stream holds %d", stored, len(all))
	}
}

// publishUntilClear publishes a batch until it is stored or fenced out.
func publishUntilClear(ctx context.Context, s *stream.Stream, saleID string, head sale.BatchHead, body []byte) error {
	for attempt := 1; ; attempt++ {
		_, err := s.Publish(ctx, saleID, head, body)
		if !errors.Is(err, stream.ErrBusy) {
			return err
		}
		timer := time.NewTimer(backoff.Delay(attempt, time.Millisecond, 20*time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}
