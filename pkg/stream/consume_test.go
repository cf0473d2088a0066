package stream_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// inbox is a Handler that remembers what it was given.
type inbox struct {
	mu       sync.Mutex
	messages []stream.Message
	times    map[uint64][]time.Time // deliveries per sequence
	answer   func(stream.Message) stream.Result
}

func (b *inbox) handle(_ context.Context, messages []stream.Message) []stream.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	results := make([]stream.Result, len(messages))
	for i, m := range messages {
		b.messages = append(b.messages, m)
		if b.times == nil {
			b.times = map[uint64][]time.Time{}
		}
		b.times[m.Seq] = append(b.times[m.Seq], time.Now())
		results[i] = stream.Ack()
		if b.answer != nil {
			results[i] = b.answer(m)
		}
	}
	return results
}

// deliveries is how often a message was given.
func (b *inbox) deliveries(seq uint64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times[seq])
}

// seqs is how many different messages were given.
func (b *inbox) seqs() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times)
}

func (b *inbox) all() []stream.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]stream.Message(nil), b.messages...)
}

// shortWaits keeps the tests from waiting for fetches to end.
var shortWaits = stream.ConsumerConfig{FetchWait: 50 * time.Millisecond, RetryDelay: 20 * time.Millisecond, DrainLimit: time.Second}

// consume runs a consumer until stop is called or the test ends.
func consume(t testing.TB, s *stream.Stream, handle stream.Handler) (stop func()) {
	t.Helper()
	return run(t, get[*stream.Consumer](t)(s.NewConsumer(shortWaits, handle)).Run)
}

// settled waits until everything is settled.
func settled(t testing.TB, s *stream.Stream) {
	t.Helper()
	harness.Eventually(t, wait, "all messages are settled", func() (bool, string) {
		status, err := s.Info(t.Context())
		return err == nil && status.AckFloor == status.LastSeq, fmt.Sprintf("%+v %v", status, err)
	})
}

func TestTheConsumerSeesEveryMessageFencesToo(t *testing.T) {
	s := open(t, harness.NATS(t))
	var want int
	for _, id := range []string{"s1", "s2"} {
		m := &maker{saleID: id, process: "p", fence: begin(t, s, id), grants: 2}
		for range 50 {
			m.publish(t, s)
		}
		want += 51
	}
	b := &inbox{}
	consume(t, s, b.handle)
	settled(t, s)
	if b.seqs() != want {
		t.Fatalf("the handler saw %d messages, want %d", b.seqs(), want)
	}
	id := get[int64](t)(s.StreamID(t.Context()))
	for _, m := range b.all() {
		wantSale, isFence := "s1", m.Seq == 1 || m.Seq == 52
		if m.Seq > 51 {
			wantSale = "s2"
		}
		if m.SaleID != wantSale || m.IsFence != isFence || m.StreamID != id || m.NumDelivered != 1 || m.Timestamp.IsZero() {
			t.Fatalf("message %d is %+v", m.Seq, m)
		}
	}
}

func TestMessagesThatPileUpAreHandedOverTogether(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	for range 99 {
		m.publish(t, s)
	}
	var calls atomic.Int64
	b := &inbox{}
	consume(t, s, func(ctx context.Context, messages []stream.Message) []stream.Result {
		calls.Add(1)
		return b.handle(ctx, messages)
	})
	settled(t, s)
	if n := calls.Load(); n > 50 {
		t.Fatalf("100 waiting messages took %d calls", n)
	}
}

func TestTheLargestMessageIsDeliveredAndRead(t *testing.T) {
	s := open(t, harness.NATS(t))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 15_500}
	if _, body := m.next(); len(body) < 900<<10 {
		t.Fatalf("the batch has only %d bytes", len(body))
	}
	seq := m.publish(t, s)
	b := &inbox{}
	consume(t, s, b.handle)
	settled(t, s)
	if b.deliveries(seq) != 1 || len(readAll(t, s, "s1")) != 1 {
		t.Fatal("it was not delivered")
	}
}

func TestARetryComesBackAfterGrowingDelays(t *testing.T) {
	s := open(t, harness.NATS(t))
	begin(t, s, "s1")
	const failures, base = 4, 50 * time.Millisecond
	// Without the jitter of Delay, so that each pause can be told from the one before.
	b := &inbox{answer: func(m stream.Message) stream.Result {
		if m.NumDelivered > failures {
			return stream.Ack()
		}
		return stream.Retry(base << m.NumDelivered)
	}}
	consume(t, s, b.handle)
	settled(t, s)
	times := b.times[1]
	if len(times) != failures+1 {
		t.Fatalf("delivered %d times, want %d", len(times), failures+1)
	}
	for i := 1; i < len(times); i++ {
		if pause, asked := times[i].Sub(times[i-1]), base<<i; pause < asked {
			t.Fatalf("delivery %d came after %v, want at least %v", i+1, pause, asked)
		}
	}
}

func TestAForgottenMessageComesAgain(t *testing.T) {
	s := open(t, harness.NATS(t))
	begin(t, s, "s1")
	b := &inbox{}
	var calls atomic.Int64
	consume(t, s, func(ctx context.Context, messages []stream.Message) []stream.Result {
		results := b.handle(ctx, messages)
		if calls.Add(1) == 1 {
			return nil
		}
		return results
	})
	settled(t, s)
	if n := b.deliveries(1); n != 2 {
		t.Fatalf("delivered %d times, want 2", n)
	}
}

func TestTheConsumerOutlivesTheServer(t *testing.T) {
	server := harness.NATS(t)
	// What was on its way when the server died comes again after AckWait.
	s := open(t, server, func(c *stream.Config) { c.AckWait = time.Second })
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	b := &inbox{}
	consume(t, s, b.handle)
	want := 1
	for range 3 {
		for range 20 {
			m.publish(t, s)
		}
		want += 20
		server.Kill()
		server.Start()
		harness.Eventually(t, wait, "the client is back", func() (bool, string) { return s.Reachable(), "not reachable" })
	}
	harness.Eventually(t, wait, "all messages are seen", func() (bool, string) {
		return b.seqs() == want, fmt.Sprintf("%d of %d", b.seqs(), want)
	})
	settled(t, s)
}

func TestADeletedConsumerIsMadeAnewAndReadsFromTheBeginning(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	first := m.publish(t, s)
	b := &inbox{}
	consume(t, s, b.handle)
	settled(t, s)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteConsumer(t.Context(), stream.GrantsStream, stream.OrdersConsumer))
	next := m.publish(t, s)
	harness.Eventually(t, wait, "old and new messages are seen", func() (bool, string) {
		return b.deliveries(first) == 2 && b.deliveries(next) == 1, fmt.Sprintf("%v", b.all())
	})
}

func TestMessagesOfANewStreamCarryItsIdentity(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	begin(t, s, "old")
	b := &inbox{}
	consume(t, s, b.handle)
	settled(t, s)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	before := get[int64](t)(s.StreamID(t.Context()))
	must(t, js.DeleteStream(t.Context(), stream.GrantsStream))
	must(t, s.EnsureTopology(t.Context()))
	after := get[int64](t)(s.StreamID(t.Context()))
	begin(t, s, "new")
	harness.Eventually(t, wait, "the new stream is read", func() (bool, string) { return b.seqs() == 1 && len(b.all()) >= 2, fmt.Sprint(b.all()) })
	for _, m := range b.all() {
		want := before
		if m.SaleID == "new" {
			want = after
		}
		if before == after || m.StreamID != want {
			t.Fatalf("%+v, the streams are %d and %d", m, before, after)
		}
	}
}

func TestStoppingFinishesTheBatchInHandAndHandsTheRestBack(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	first := begin(t, s, "s1").Seq
	entered, leave := make(chan struct{}), make(chan struct{})
	b := &inbox{}
	var once sync.Once
	cfg := shortWaits
	cfg.Loops, cfg.FetchWait = 1, 500*time.Millisecond
	consumer := get[*stream.Consumer](t)(s.NewConsumer(cfg, func(ctx context.Context, messages []stream.Message) []stream.Result {
		once.Do(func() { close(entered); <-leave })
		return b.handle(ctx, messages)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); consumer.Run(ctx) }()
	<-entered
	m := &maker{saleID: "s1", process: "p", fence: stream.Fence{Generation: 1, Seq: first}, grants: 1}
	second := m.publish(t, s) // fetched while the handler is busy
	harness.Eventually(t, wait, "the second message is fetched", func() (bool, string) {
		status, err := s.Info(t.Context())
		return err == nil && status.AckPending == 2, fmt.Sprintf("%+v %v", status, err)
	})
	cancel()
	close(leave)
	<-over
	if b.deliveries(first) != 1 || b.deliveries(second) != 0 {
		t.Fatalf("the batch in hand was handled %d times, the other %d times", b.deliveries(first), b.deliveries(second))
	}
	// AckWait is 30s: without being handed back it would come only then.
	start := time.Now()
	consume(t, s, b.handle)
	settled(t, s)
	if b.deliveries(first) != 1 || b.deliveries(second) != 1 || time.Since(start) > 20*time.Second {
		t.Fatalf("handled %d and %d times after %v", b.deliveries(first), b.deliveries(second), time.Since(start))
	}
}

func TestStoppingEndsAHandlerAtTheDrainLimit(t *testing.T) {
	s := open(t, harness.NATS(t))
	begin(t, s, "s1")
	cfg := shortWaits
	cfg.DrainLimit = 100 * time.Millisecond
	entered := make(chan struct{})
	var once sync.Once
	consumer := get[*stream.Consumer](t)(s.NewConsumer(cfg, func(ctx context.Context, _ []stream.Message) []stream.Result {
		once.Do(func() { close(entered) })
		<-ctx.Done()
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); consumer.Run(ctx) }()
	<-entered
	start := time.Now()
	cancel()
	<-over
	if took := time.Since(start); took < cfg.DrainLimit || took > 10*time.Second {
		t.Fatalf("Run returned after %v", took)
	}
}

func TestWorkInProgressIsNotDeliveredAgain(t *testing.T) {
	s := open(t, harness.NATS(t), func(c *stream.Config) { c.AckWait = time.Second })
	begin(t, s, "s1")
	b := &inbox{}
	var calls atomic.Int64
	consume(t, s, func(ctx context.Context, messages []stream.Message) []stream.Result {
		calls.Add(1)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for range 8 {
			<-tick.C
			if err := messages[0].InProgress(); err != nil {
				t.Error(err)
			}
		}
		return b.handle(ctx, messages)
	})
	settled(t, s)
	if n := calls.Load(); n != 1 {
		t.Fatalf("delivered %d times", n)
	}
}

func TestTwoConsumersShareTheMessages(t *testing.T) {
	server := harness.NATS(t)
	s, other := open(t, server), openOnly(t, server.URL())
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	one, two := &inbox{}, &inbox{}
	consume(t, s, one.handle)
	consume(t, other, two.handle)
	for range 200 {
		m.publish(t, s)
	}
	settled(t, s)
	if n := len(one.all()) + len(two.all()); n != 201 {
		t.Fatalf("201 messages were delivered %d times", n)
	}
}

func TestAConsumerConfigurationOutOfRangeIsRefused(t *testing.T) {
	s := openOnly(t, "nats://127.0.0.1:1")
	for name, cfg := range map[string]stream.ConsumerConfig{
		"loops": {Loops: 65}, "fetch": {FetchMax: -1},
		"wait": {FetchWait: time.Hour}, "retry": {RetryDelay: -1}, "drain": {DrainLimit: time.Nanosecond},
	} {
		if _, err := s.NewConsumer(cfg, nil); err == nil {
			t.Errorf("%s: %+v was accepted", name, cfg)
		}
	}
}
