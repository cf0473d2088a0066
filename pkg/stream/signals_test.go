package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestRestockedReachesEveryNodeUntilItUnsubscribes(t *testing.T) {
	server := harness.NATS(t)
	sender := open(t, server)
	var heard [2]atomic.Int64
	var stops []func()
	for i := range heard {
		node := open(t, server)
		stops = append(stops, get[func()](t)(node.SubscribeRestocked(func(saleID string) {
			if saleID == "s1" {
				heard[i].Add(1)
			}
		})))
		must(t, node.Connected(t.Context())) // the server has seen the subscription before the answer
	}
	must(t, sender.Restocked("s1"))
	for i := range heard {
		harness.Eventually(t, wait, "the node hears it", func() (bool, string) { return heard[i].Load() == 1, "silence" })
	}
	stops[0]()
	must(t, sender.Restocked("s1"))
	harness.Eventually(t, wait, "the other still hears it", func() (bool, string) { return heard[1].Load() == 2, "silence" })
	if heard[0].Load() != 1 {
		t.Fatal("the one that unsubscribed heard it, too")
	}
	stops[1]()
}

func TestRestockedIsHeardAfterARestartOfTheServer(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	var heard atomic.Int64
	stop := get[func()](t)(s.SubscribeRestocked(func(string) { heard.Add(1) }))
	defer stop()
	server.Kill()
	server.Start()
	harness.Eventually(t, wait, "it is heard", func() (bool, string) {
		err := s.Restocked("s1")
		return heard.Load() > 0, errText(err)
	})
}

// serve answers reconcile requests until the test ends.
func serve(t *testing.T, s *stream.Stream, fn func(ctx context.Context, saleID, reason string) ([]byte, error)) {
	t.Helper()
	run(t, func(ctx context.Context) {
		if err := s.ServeReconcile(ctx, fn); err != nil {
			t.Error(err)
		}
	})
}

// answered asks until a reconciler listens.
func answered(t *testing.T, s *stream.Stream, saleID, reason string) (reply []byte, err error) {
	t.Helper()
	harness.Eventually(t, wait, "a reconciler listens", func() (bool, string) {
		reply, err = s.AskReconcile(t.Context(), saleID, reason)
		return !errors.Is(err, stream.ErrNoReconciler), "none"
	})
	return reply, err
}

func TestAReconcileRequestIsAnsweredByOneReconciler(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	_, err := s.AskReconcile(t.Context(), "s1", "test")
	wantError(t, err, stream.ErrNoReconciler)
	var calls atomic.Int64
	for range 3 {
		serve(t, open(t, server), func(_ context.Context, saleID, reason string) ([]byte, error) {
			calls.Add(1)
			return []byte(saleID + " because " + reason), nil
		})
	}
	reply, err := answered(t, s, "s1", "test")
	must(t, err)
	if string(reply) != "s1 because test" || calls.Load() != 1 {
		t.Fatalf("the reply is %q after %d calls", reply, calls.Load())
	}
}

func TestAReconcilersErrorReachesTheAsker(t *testing.T) {
	s := open(t, harness.NATS(t))
	serve(t, s, func(context.Context, string, string) ([]byte, error) { return nil, errors.New("the ledger is away") })
	if _, err := answered(t, s, "s1", "test"); err == nil || !strings.Contains(err.Error(), "the ledger is away") {
		t.Fatalf("the error is %v", err)
	}
}

func TestReconcilesRunAtOnceUpToTheirBound(t *testing.T) {
	const limit, asked = 3, 9
	s := open(t, harness.NATS(t), func(c *stream.Config) { c.ReconcilesMax = limit })
	var running, most atomic.Int64
	release := make(chan struct{})
	serve(t, s, func(context.Context, string, string) ([]byte, error) {
		now := running.Add(1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		<-release
		running.Add(-1)
		return nil, nil
	})
	must(t, s.Connected(t.Context()))
	var wg sync.WaitGroup
	for i := range asked {
		wg.Go(func() {
			if _, err := s.AskReconcile(t.Context(), fmt.Sprintf("s%d", i), "test"); err != nil {
				t.Error(err)
			}
		})
	}
	harness.Eventually(t, wait, "as many as may run", func() (bool, string) { return running.Load() == limit, fmt.Sprint(running.Load()) })
	close(release)
	wg.Wait()
	if most.Load() != limit {
		t.Fatalf("%d ran at once, want %d", most.Load(), limit)
	}
}

// Many ask for one sale that takes long: they share one call per reason and leave
// the other worker to other sales.
func TestRequestsForOneSaleShareACallAndLeaveRoomForOthers(t *testing.T) {
	const asked = 20
	s := open(t, harness.NATS(t), func(c *stream.Config) { c.ReconcilesMax = 2 })
	release := make(chan struct{})
	var mu sync.Mutex
	calls := map[string]int{}
	running := func(call string) int {
		mu.Lock()
		defer mu.Unlock()
		return calls[call]
	}
	serve(t, s, func(_ context.Context, saleID, reason string) ([]byte, error) {
		call := saleID + " " + reason
		mu.Lock()
		calls[call]++
		mu.Unlock()
		if saleID == "slow" {
			<-release
		}
		return []byte(call), nil
	})
	must(t, s.Connected(t.Context()))
	var wg sync.WaitGroup
	ask := func(reason string) {
		wg.Go(func() {
			reply, err := s.AskReconcile(t.Context(), "slow", reason)
			if err != nil || string(reply) != "slow "+reason {
				t.Errorf("slow %s was answered %q, error %v", reason, reply, err)
			}
		})
	}
	ask("lost")
	harness.Eventually(t, wait, "the slow call runs", func() (bool, string) { return running("slow lost") == 1, "" })
	for range asked {
		ask("lost")
		ask("forced")
	}
	for i := range asked {
		if reply, err := s.AskReconcile(t.Context(), "quick", "lost"); err != nil || string(reply) != "quick lost" {
			t.Fatalf("request %d for another sale was answered %q, error %v", i, reply, err)
		}
	}
	close(release)
	wg.Wait()
	if lost, forced := running("slow lost"), running("slow forced"); lost > asked/2 || forced < 1 || forced > asked/2 {
		t.Errorf("%d and %d calls were made for %d requests each, want them shared and forced ones apart", lost, forced, asked)
	}
}

func TestAskingIsBoundedByItsContext(t *testing.T) {
	s := open(t, harness.NATS(t))
	serve(t, s, func(ctx context.Context, _, _ string) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
	must(t, s.Connected(t.Context()))
	var err error
	harness.Eventually(t, wait, "a reconciler listens", func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = s.AskReconcile(ctx, "s1", "test")
		return !errors.Is(err, stream.ErrNoReconciler), ""
	})
	wantError(t, err, context.DeadlineExceeded)
}
