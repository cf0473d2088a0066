package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// fill publishes n batches straight to the server, which is faster than one by one.
func fill(t testing.TB, s *stream.Stream, m *maker, n int) {
	t.Helper()
	const publishers = 64
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for range (n + i) / publishers {
				head, body := m.next()
				if err := publishWhenFree(t, s, m.saleID, head, body); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// publishWhenFree publishes again for as long as another publish is in the way.
func publishWhenFree(t testing.TB, s *stream.Stream, saleID string, head sale.BatchHead, body []byte) error {
	for attempt := 1; ; attempt++ {
		_, err := s.Publish(t.Context(), saleID, head, body)
		if !errors.Is(err, stream.ErrBusy) || !backoff.Pause(t.Context(), backoff.Delay(attempt, time.Millisecond, 50*time.Millisecond)) {
			return err
		}
	}
}

// lazySync trades the disk's promise for speed where a test needs many messages and
// no power is lost. Its block replaces the harness's, so it names a folder of its own.
func lazySync(t testing.TB) *harness.NATSServer {
	return harness.NATS(t, harness.WithNATSConfig(fmt.Sprintf(
		"jetstream { store_dir: %q, sync_interval: 2m }", harness.Folder(t, "nats"))))
}

func TestReadGrantsIsCompleteAcrossARestart(t *testing.T) {
	server := lazySync(t)
	s := open(t, server)
	const n = 100_000
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	other := &maker{saleID: "s2", process: "p", fence: begin(t, s, "s2"), grants: 1}
	fill(t, s, m, n)
	fill(t, s, other, 1000)
	end := begin(t, s, "s1")

	reading, restarted := make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	seen := make([]bool, n+1)
	count, lastSeq := 0, uint64(0)
	go func() {
		result <- s.ReadGrants(context.Background(), "s1", 0, end.Seq, func(seq uint64, b sale.Batch) error {
			switch count++; {
			case seq <= lastSeq || seen[b.Number]:
				return fmt.Errorf("message %d after %d, batch %d", seq, lastSeq, b.Number)
			case count == n/3:
				close(reading)
				<-restarted
			}
			lastSeq, seen[b.Number] = seq, true
			return nil
		})
	}()
	<-reading
	server.Kill()
	server.Start()
	close(restarted)
	must(t, <-result)
	if count != n {
		t.Fatalf("visited %d batches, want %d", count, n)
	}
}

func TestReadGrantsReadsExactlyTheAskedRange(t *testing.T) {
	s := open(t, harness.NATS(t))
	first := begin(t, s, "s1") // 1
	m := &maker{saleID: "s1", process: "p", fence: first, grants: 1}
	m.publish(t, s)             // 2
	m.publish(t, s)             // 3
	begin(t, s, "s2")           // 4
	m.publish(t, s)             // 5
	m.fence = begin(t, s, "s1") // 6
	m.publish(t, s)             // 7
	begin(t, s, "s2")           // 8
	for _, c := range []struct {
		after, through uint64
		want           string
	}{
		{0, 8, "[2 3 5 7]"},
		{0, 7, "[2 3 5 7]"},
		{0, 6, "[2 3 5]"},
		{2, 6, "[3 5]"},
		{2, 4, "[3]"},
		{3, 4, "[]"},
		{5, 6, "[]"},
		{7, 8, "[]"},
		{0, 1, "[]"},
		{3, 3, "[]"},
		{5, 2, "[]"},
		{0, 0, "[]"},
	} {
		t.Run(fmt.Sprintf("%d to %d", c.after, c.through), func(t *testing.T) {
			seqs := []uint64{}
			start := time.Now()
			must(t, s.ReadGrants(t.Context(), "s1", c.after, c.through, func(seq uint64, _ sale.Batch) error {
				seqs = append(seqs, seq)
				return nil
			}))
			if got := fmt.Sprint(seqs); got != c.want {
				t.Fatalf("visited %s, want %s", got, c.want)
			}
			// One fetch waits a second for messages that don't come; none may.
			if took := time.Since(start); took > 900*time.Millisecond {
				t.Fatalf("took %v", took)
			}
		})
	}
}

func TestReadGrantsOfASaleWithoutMessagesEndsAtOnce(t *testing.T) {
	s := open(t, harness.NATS(t))
	begin(t, s, "s1")
	start := time.Now()
	must(t, s.ReadGrants(t.Context(), "nobody", 0, 1, func(uint64, sale.Batch) error { return errors.New("visited") }))
	if took := time.Since(start); took > 900*time.Millisecond {
		t.Fatalf("took %v", took)
	}
}

func TestReadGrantsDoesNotCallAStreamCompleteThatEndsBefore(t *testing.T) {
	s := open(t, harness.NATS(t))
	begin(t, s, "s1")
	err := s.ReadGrants(t.Context(), "s1", 0, 2, func(uint64, sale.Batch) error { return nil })
	wantError(t, err, stream.ErrBehind)
}

func TestReadGrantsReturnsWhatVisitReturns(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	for range 5 {
		m.publish(t, s)
	}
	enough := errors.New("enough")
	visits := 0
	err := s.ReadGrants(t.Context(), "s1", 0, 6, func(uint64, sale.Batch) error {
		if visits++; visits == 3 {
			return enough
		}
		return nil
	})
	wantError(t, err, enough)
	if visits != 3 {
		t.Fatalf("visited %d times", visits)
	}
}

func TestReadGrantsStopsAtACorruptBatch(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	begin(t, s, "s1")
	_, err := server.Conn().Request("grants.s1", []byte("no batch"), wait)
	must(t, err)
	end := begin(t, s, "s1")
	err = s.ReadGrants(t.Context(), "s1", 0, end.Seq, func(uint64, sale.Batch) error { return nil })
	wantError(t, err, sale.ErrCorrupt)
}

func TestReadGrantsEndsWithItsContext(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	end := begin(t, s, "s1")
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := s.ReadGrants(ctx, "s1", 0, end.Seq, func(uint64, sale.Batch) error { return nil })
	wantError(t, err, context.DeadlineExceeded)
}

func TestReadGrantsGivesUpAfterItsAttempts(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, func(c *stream.Config) { c.ReadAttempts = 2 })
	end := begin(t, s, "s1")
	server.Kill()
	harness.Eventually(t, wait, "the client notices", func() (bool, string) { return !s.Reachable(), "reachable" })
	err := s.ReadGrants(t.Context(), "s1", 0, end.Seq, func(uint64, sale.Batch) error { return nil })
	wantError(t, err, stream.ErrNotConnected)
}

func TestReadGrantsNoticesThatTheStreamWasMadeAnew(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	for range 3 {
		m.publish(t, s)
	}
	end := begin(t, s, "s1")
	err := s.ReadGrants(t.Context(), "s1", 0, end.Seq, func(seq uint64, _ sale.Batch) error {
		if seq == 2 {
			must(t, js.DeleteStream(t.Context(), stream.GrantsStream))
			must(t, s.EnsureTopology(t.Context()))
		}
		return nil
	})
	wantError(t, err, stream.ErrStreamChanged)
}

func TestReadGrantsGetsOverAPurgeUnderItsHands(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	grants := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	fill(t, s, m, 3000) // more than one fetch holds
	last := get[stream.Status](t)(s.Info(t.Context())).LastSeq
	begin(t, s, "s2")
	err := s.ReadGrants(t.Context(), "s1", 0, last+1, func(seq uint64, _ sale.Batch) error {
		if seq == 100 {
			must(t, grants.Purge(t.Context(), jetstream.WithPurgeSubject("grants.s1")))
		}
		return nil
	})
	must(t, err)
}

func TestReadGrantsLeavesNoConsumerBehind(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	m.publish(t, s)
	readAll(t, s, "s1")
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	grants := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream))
	if n := grants.CachedInfo().State.Consumers; n != 1 {
		t.Fatalf("the stream has %d consumers, want the one of the order workers", n)
	}
}
