package stream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestASaleWithoutAFenceHasTheZeroFence(t *testing.T) {
	s := open(t, harness.NATS(t))
	if fence := get[stream.Fence](t)(s.LastFence(t.Context(), "s1")); fence != (stream.Fence{}) {
		t.Fatalf("the last fence is %+v", fence)
	}
}

func TestGenerationsGrowByOneAndStartWhereAsked(t *testing.T) {
	s := open(t, harness.NATS(t))
	for _, step := range []struct{ atLeast, want int64 }{{0, 1}, {1, 2}, {2, 3}, {10, 10}, {5, 11}} {
		fence := get[stream.Fence](t)(s.BeginGeneration(t.Context(), "s1", step.atLeast))
		if fence.Generation != step.want {
			t.Fatalf("at least %d begins generation %d, want %d", step.atLeast, fence.Generation, step.want)
		}
		if last := get[stream.Fence](t)(s.LastFence(t.Context(), "s1")); last != fence {
			t.Fatalf("the last fence is %+v, want %+v", last, fence)
		}
	}
	if other := begin(t, s, "s2"); other.Generation != 1 {
		t.Fatalf("another sale begins with generation %d", other.Generation)
	}
}

func TestReconcilersThatRaceGetAGenerationEach(t *testing.T) {
	server := harness.NATS(t)
	const reconcilers, rounds = 8, 10
	s := open(t, server)
	var mu sync.Mutex
	seen := map[int64]uint64{}
	var wg sync.WaitGroup
	for range reconcilers {
		wg.Go(func() {
			for range rounds {
				fence, err := s.BeginGeneration(t.Context(), "s1", 1)
				mu.Lock()
				if err != nil || seen[fence.Generation] != 0 {
					t.Errorf("fence %+v, error %v", fence, err)
				}
				seen[fence.Generation] = fence.Seq
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for g := int64(1); g <= reconcilers*rounds; g++ {
		if seen[g] == 0 || g > 1 && seen[g] <= seen[g-1] {
			t.Fatalf("generation %d has sequence %d, the one before %d", g, seen[g], seen[g-1])
		}
	}
}

func TestNothingOfTheOldGenerationPassesAFence(t *testing.T) {
	server := harness.NATS(t)
	const rounds, publishers = 5, 8
	reconciler := open(t, server)
	nodes := make([]*stream.Stream, publishers)
	for i := range nodes {
		nodes[i] = openOnly(t, server.URL())
	}
	fence := begin(t, reconciler, "s1")
	lastAcked := map[string]uint64{} // per process and generation
	for range rounds {
		var mu sync.Mutex
		var running sync.WaitGroup
		started := make(chan struct{}, publishers)
		for i, node := range nodes {
			m := &maker{saleID: "s1", process: string(rune('a' + i)), fence: fence, grants: 3}
			running.Go(func() {
				for {
					head, body := m.next()
					seq, err := node.Publish(t.Context(), "s1", head, body)
					if err != nil {
						if !errors.Is(err, stream.ErrFenced) {
							t.Errorf("publish: %v", err)
						}
						return
					}
					mu.Lock()
					lastAcked[m.process] = seq
					mu.Unlock()
					if head.Number == 5 {
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
		next := begin(t, reconciler, "s1")
		running.Wait()
		for process, seq := range lastAcked {
			if seq > next.Seq {
				t.Fatalf("process %s was acknowledged at %d, beyond the fence at %d", process, seq, next.Seq)
			}
		}
		fence = next
	}
	checkFences(t, reconciler)
}

// checkFences reads the whole stream: no batch stands beyond the fence that ended its generation.
func checkFences(t *testing.T, s *stream.Stream) {
	t.Helper()
	all := readAll(t, s, "s1")
	var newest uint64
	for _, b := range all {
		if b.batch.Fence < newest {
			t.Fatalf("message %d of fence %d stands after one of fence %d", b.seq, b.batch.Fence, newest)
		}
		newest = max(newest, b.batch.Fence)
	}
	if len(all) < 5*8*5 {
		t.Fatalf("only %d batches were published, the race was none", len(all))
	}
}

func TestAFenceWhoseAnswerIsLostIsRecognised(t *testing.T) {
	server := harness.NATS(t)
	between := newProxy(t, server.URL())
	s := open(t, server)
	lossy := openOnly(t, between.url(), quick)
	must(t, lossy.AwaitTopology(t.Context()))
	for want := int64(1); want <= 3; want++ {
		between.loseAnswersAfter("HPUB fence.s1 ")
		fence := get[stream.Fence](t)(lossy.BeginGeneration(t.Context(), "s1", 1))
		if between.lost() != int(want) {
			t.Fatal("no answer was lost")
		}
		last := get[stream.Fence](t)(s.LastFence(t.Context(), "s1"))
		if fence != last || fence.Generation != want {
			t.Fatalf("began %+v, the stream's last is %+v, want generation %d", fence, last, want)
		}
	}
}

func TestAGenerationBeginsAfterTheServerIsBack(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, func(c *stream.Config) { c.FenceAttempts = 2000 })
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	seq := m.publish(t, s)
	server.Kill()
	done := make(chan stream.Fence, 1)
	go func() {
		fence, err := s.BeginGeneration(context.Background(), "s1", 1)
		if err != nil {
			t.Error(err)
		}
		done <- fence
	}()
	server.Start()
	fence := <-done
	if fence.Generation != 2 || fence.Seq <= seq {
		t.Fatalf("the fence is %+v, after a batch at %d", fence, seq)
	}
	if all := readAll(t, s, "s1"); len(all) != 1 || all[0].seq != seq {
		t.Fatalf("the stream holds %+v, want the one batch at %d", all, seq)
	}
}

func TestAMessageThatIsNoFenceIsAnError(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	conn := server.Conn()
	_, err := conn.Request("fence.s1", []byte("hello"), wait)
	must(t, err)
	if _, err := s.LastFence(t.Context(), "s1"); err == nil {
		t.Fatal("hello was taken for a fence")
	}
}

func TestTheTimeOfAMessageTellsItFromOthers(t *testing.T) {
	s := open(t, harness.NATS(t))
	first := get[stream.Fence](t)(s.BeginGeneration(t.Context(), "s1", 1))
	second := get[stream.Fence](t)(s.BeginGeneration(t.Context(), "s1", 1))
	times := map[uint64]int64{}
	for _, seq := range []uint64{first.Seq, second.Seq} {
		at, found, err := s.TimestampAt(t.Context(), seq)
		if err != nil || !found {
			t.Fatalf("message %d: found %v, error %v", seq, found, err)
		}
		times[seq] = at
	}
	if times[first.Seq] >= times[second.Seq] {
		t.Errorf("the times %v do not grow", times)
	}
	status := get[stream.Status](t)(s.Info(t.Context()))
	if last := status.LastTime.UnixNano(); times[second.Seq] != last {
		t.Errorf("the last message is of %d, the stream says %d", times[second.Seq], last)
	}
	for _, none := range []uint64{0, second.Seq + 1} {
		if at, found, err := s.TimestampAt(t.Context(), none); err != nil || found || at != 0 {
			t.Errorf("sequence %d: %d, found %v, error %v; want none", none, at, found, err)
		}
	}
}
