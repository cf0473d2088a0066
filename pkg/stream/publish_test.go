package stream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestAPublishedBatchComesBackAsItWas(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 100}
	head, body := m.next()
	seq := get[uint64](t)(s.Publish(t.Context(), "s1", head, body))
	all := readAll(t, s, "s1")
	if len(all) != 1 || all[0].seq != seq || string(sale.EncodeBatch(all[0].batch)) != string(body) {
		t.Fatalf("the stream holds %+v", all)
	}
}

func TestABatchThatIsPublishedTwiceIsStoredOnce(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	head, body := m.next()
	first := get[uint64](t)(s.Publish(t.Context(), "s1", head, body))
	m.publish(t, s)
	again := get[uint64](t)(s.Publish(t.Context(), "s1", head, body))
	if first != again {
		t.Fatalf("stored at %d, and again at %d", first, again)
	}
	if all := readAll(t, s, "s1"); len(all) != 2 {
		t.Fatalf("the stream holds %d batches, want 2", len(all))
	}
}

func TestTheSameBatchNumberOfTwoSalesIsNoDuplicate(t *testing.T) {
	s := open(t, harness.NATS(t))
	one := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	two := &maker{saleID: "s2", process: "p", fence: begin(t, s, "s2"), grants: 1}
	if a, b := one.publish(t, s), two.publish(t, s); a == b {
		t.Fatalf("both are stored at %d", a)
	}
	if len(readAll(t, s, "s1")) != 1 || len(readAll(t, s, "s2")) != 1 {
		t.Fatal("a batch is missing")
	}
}

func TestABatchIsFencedOutByALaterFence(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	begin(t, s, "s2") // of another sale: no matter
	m.publish(t, s)
	begin(t, s, "s1")
	head, body := m.next()
	_, err := s.Publish(t.Context(), "s1", head, body)
	wantError(t, err, stream.ErrFenced)
	if all := readAll(t, s, "s1"); len(all) != 1 {
		t.Fatalf("the stream holds %d batches, want 1", len(all))
	}
}

// One server alone compares the fence before the id; see cluster_test.go for replicas.
func TestOneServerAnswersFencedToADuplicateFromBeforeTheFence(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	head, body := m.next()
	seq := get[uint64](t)(s.Publish(t.Context(), "s1", head, body))
	begin(t, s, "s1")
	_, err := s.Publish(t.Context(), "s1", head, body)
	wantError(t, err, stream.ErrFenced)
	if all := readAll(t, s, "s1"); len(all) != 1 || all[0].seq != seq {
		t.Fatalf("the stream holds %+v, want the batch at %d", all, seq)
	}
}

func TestALostAnswerIsAmbiguousAndTryingAgainTellsTheTruth(t *testing.T) {
	server := harness.NATS(t)
	between := newProxy(t, server.URL())
	lossy := openOnly(t, between.url(), quick)
	must(t, lossy.AwaitTopology(t.Context()))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, lossy, "s1"), grants: 1}
	between.loseAnswersAfter("HPUB grants.s1 ")
	head, body := m.next()
	_, err := lossy.Publish(t.Context(), "s1", head, body)
	wantError(t, err, stream.ErrAmbiguous)
	harness.Eventually(t, wait, "the batch is acknowledged", func() (bool, string) {
		seq, err := lossy.Publish(t.Context(), "s1", head, body)
		return err == nil && seq == 2, errText(err)
	})
	if all := readAll(t, lossy, "s1"); len(all) != 1 {
		t.Fatalf("the stream holds %d batches, want 1", len(all))
	}
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func TestASilentServerIsAmbiguousWithinTheDeadline(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, func(c *stream.Config) { c.PublishTimeout = 200 * time.Millisecond })
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	server.Pause()
	// The kernel takes a moment to freeze all of it.
	harness.Eventually(t, wait, "a publish is ambiguous", func() (bool, string) {
		head, body := m.next()
		start := time.Now()
		_, err := s.Publish(t.Context(), "s1", head, body)
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("the answer took %v", took)
		}
		return errors.Is(err, stream.ErrAmbiguous), errText(err)
	})
	server.Resume()
}

func TestWithoutAConnectionNothingIsSentNorKeptForLater(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	server.Kill()
	harness.Eventually(t, wait, "the client notices", func() (bool, string) { return !s.Reachable(), "reachable" })
	for range 3 {
		head, body := m.next()
		_, err := s.Publish(t.Context(), "s1", head, body)
		wantError(t, err, stream.ErrNotSent)
	}
	server.Start()
	harness.Eventually(t, wait, "the client is back", func() (bool, string) {
		err := s.Connected(t.Context())
		return err == nil, errText(err)
	})
	if all := readAll(t, s, "s1"); len(all) != 0 {
		t.Fatalf("the stream holds %d batches that were refused", len(all))
	}
}

func TestWithoutAStreamNothingIsSent(t *testing.T) {
	server := harness.NATS(t)
	s := openOnly(t, server.URL())
	m := &maker{saleID: "s1", process: "p", fence: stream.Fence{Generation: 1, Seq: 1}, grants: 1}
	head, body := m.next()
	_, err := s.Publish(t.Context(), "s1", head, body)
	wantError(t, err, stream.ErrNotSent)
}

func TestAFullStreamRefusesAndKeepsWhatItHas(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	seq := m.publish(t, s)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	grants := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream))
	limited := grants.CachedInfo().Config
	limited.MaxMsgs = 2
	_, err := js.UpdateStream(t.Context(), limited)
	must(t, err)
	must(t, s.EnsureTopology(t.Context())) // leaves an operator's limit alone
	head, body := m.next()
	_, err = s.Publish(t.Context(), "s1", head, body)
	wantError(t, err, stream.ErrAmbiguous)
	if all := readAll(t, s, "s1"); len(all) != 1 || all[0].seq != seq {
		t.Fatalf("the stream holds %+v, want the batch at %d", all, seq)
	}
}

func TestABatchThatDoesNotFitItsHeadIsRefused(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	head, body := m.next()
	other, unfenced := head, head
	other.Generation++
	unfenced.Fence = 0
	huge := append(append([]byte(nil), body...), make([]byte, 2<<20)...)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		saleID string
		head   sale.BatchHead
		body   []byte
	}{
		{"another generation's head", t.Context(), "s1", other, body},
		{"no fence", t.Context(), "s1", unfenced, sale.AppendHead(nil, unfenced)},
		{"a sale id that is a wildcard", t.Context(), "*", head, body},
		{"a body beyond the server's limit", t.Context(), "s1", head, huge},
		{"a context that is over", ended, "s1", head, body},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Publish(c.ctx, c.saleID, c.head, c.body)
			wantError(t, err, stream.ErrNotSent)
		})
	}
	if all := readAll(t, s, "s1"); len(all) != 0 {
		t.Fatalf("the stream holds %d batches", len(all))
	}
}

func TestNoAcknowledgedBatchIsLostToSIGKILL(t *testing.T) {
	server := harness.NATS(t)
	const rounds, publishers, perRound = 3, 4, 100
	s := open(t, server, quick)
	fence := begin(t, s, "s1")
	makers := make([]*maker, publishers)
	for i := range makers {
		makers[i] = &maker{saleID: "s1", process: string(rune('a' + i)), fence: fence, grants: 5}
	}
	type key struct {
		process string
		number  uint64
	}
	var mu sync.Mutex
	acked := map[key]uint64{}
	for range rounds {
		enough := make(chan struct{})
		begun := len(acked)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, m := range makers {
			running.Go(func() {
				for ctx.Err() == nil {
					head, body := m.next()
					seq, err := s.Publish(t.Context(), "s1", head, body)
					if errors.Is(err, stream.ErrFenced) || errors.Is(err, stream.ErrBusy) {
						t.Errorf("publish: %v", err)
					}
					mu.Lock()
					if err == nil {
						acked[key{m.process, head.Number}] = seq
						if len(acked) == begun+perRound {
							close(enough)
						}
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(wait):
			t.Error("the publishers don't get on")
		}
		server.Kill() // under fire
		cancel()
		running.Wait()
		server.Start()
		harness.Eventually(t, wait, "the client is back", func() (bool, string) {
			err := s.Connected(t.Context())
			return err == nil, errText(err)
		})
	}
	for _, b := range readAll(t, s, "s1") {
		k := key{b.batch.Process, b.batch.Number}
		if seq, ok := acked[k]; ok && seq != b.seq {
			t.Fatalf("batch %+v was acknowledged at %d and stands at %d", k, seq, b.seq)
		}
		delete(acked, k)
	}
	if len(acked) > 0 {
		t.Fatalf("%d acknowledged batches are lost: %v", len(acked), acked)
	}
}
