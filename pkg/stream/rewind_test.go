package stream_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestRewoundWorkersReadOnFromThereAndKeepTheirPlace(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, func(c *stream.Config) { c.AckWait = 7 * time.Second })
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	b := &inbox{}
	consume(t, s, b.handle)
	for range 4 {
		m.publish(t, s)
	}
	settled(t, s)

	must(t, s.RewindOrders(t.Context(), 4))
	settled(t, s)
	must(t, s.EnsureTopology(t.Context())) // by a service that starts
	m.publish(t, s)
	settled(t, s)

	for i, want := range []int{1, 1, 1, 2, 2, 1} {
		if got := b.deliveries(uint64(i + 1)); got != want {
			t.Errorf("message %d was delivered %d times, want %d", i+1, got, want)
		}
	}
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	consumer := get[jetstream.Consumer](t)(js.Consumer(t.Context(), stream.GrantsStream, stream.OrdersConsumer))
	if wait := consumer.CachedInfo().Config.AckWait; wait != 7*time.Second {
		t.Errorf("AckWait is %s, want it kept", wait)
	}
}

func TestRewindingMakesAConsumerThatIsMissing(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	last := m.publish(t, s)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteConsumer(t.Context(), stream.GrantsStream, stream.OrdersConsumer))
	must(t, s.RewindOrders(t.Context(), last))
	if status := get[stream.Status](t)(s.Info(t.Context())); status.Pending != 1 {
		t.Errorf("%d messages pending, want the last", status.Pending)
	}
}

func TestTheNextSequencePassesOverWhatWasPurged(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	a := &maker{saleID: "a", process: "p", fence: begin(t, s, "a"), grants: 1}
	b := &maker{saleID: "b", process: "p", fence: begin(t, s, "b"), grants: 1}
	a.publish(t, s)
	b.publish(t, s)
	a.publish(t, s)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	grants := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream))
	must(t, grants.Purge(t.Context(), jetstream.WithPurgeSubject("grants.a")))

	if seq := get[uint64](t)(s.NextSeq(t.Context(), 3)); seq != 4 {
		t.Errorf("the next sequence is %d, want 4", seq)
	}
	_, err := s.NextSeq(t.Context(), 5)
	wantError(t, err, stream.ErrNoMessage)
}
