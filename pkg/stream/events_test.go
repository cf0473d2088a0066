package stream_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// someEvents makes n events of different orders.
func someEvents(n int) []stream.Event {
	all := make([]stream.Event, n)
	for i := range all {
		all[i] = stream.Event{ID: fmt.Sprint("evt_", i), Kind: sale.EventKinds[i%len(sale.EventKinds)], Body: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	return all
}

// eventIDs reads the whole stream of events.
func eventIDs(t *testing.T, server *harness.NATSServer) []string {
	t.Helper()
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	s := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.EventsStream))
	info := get[*jetstream.StreamInfo](t)(s.Info(t.Context()))
	var ids []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg := get[*jetstream.RawStreamMsg](t)(s.GetMsg(t.Context(), seq))
		ids = append(ids, msg.Header.Get(jetstream.MsgIDHeader))
	}
	return ids
}

func TestEventsAreStoredInTheirOrderAndOnce(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, func(c *stream.Config) { c.EventsInFlight = 7 })
	all := someEvents(100)
	for range 2 {
		stored, err := s.PublishEvents(t.Context(), all)
		must(t, err)
		if slices.Contains(stored, false) {
			t.Fatalf("stored: %v", stored)
		}
	}
	ids := eventIDs(t, server)
	if len(ids) != len(all) {
		t.Fatalf("the stream holds %d events, want %d", len(ids), len(all))
	}
	for i, id := range ids {
		if id != all[i].ID {
			t.Fatalf("event %d is %s, want %s", i, id, all[i].ID)
		}
	}
}

func TestAnEventIsOnTheSubjectOfItsKind(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	_, err := s.PublishEvents(t.Context(), []stream.Event{{ID: "e1", Kind: sale.EventPaid, Body: []byte("{}")}})
	must(t, err)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	events := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.EventsStream))
	msg := get[*jetstream.RawStreamMsg](t)(events.GetLastMsgForSubject(t.Context(), "orders.paid"))
	if string(msg.Data) != "{}" {
		t.Fatalf("the event is %s", msg.Data)
	}
}

func TestEventsThatNobodyTakesAreSaidNotToBeStored(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, quick)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteStream(t.Context(), stream.EventsStream))
	all := someEvents(3)
	stored, err := s.PublishEvents(t.Context(), all)
	if err == nil || slices.Contains(stored, true) {
		t.Fatalf("without a stream: %v, %v", stored, err)
	}
	must(t, s.EnsureTopology(t.Context()))
	stored, err = s.PublishEvents(t.Context(), all)
	must(t, err)
	if slices.Contains(stored, false) {
		t.Fatalf("with the stream again: %v", stored)
	}

	server.Pause()
	begin := time.Now()
	stored, err = s.PublishEvents(t.Context(), someEvents(5)[3:])
	if err == nil || slices.Contains(stored, true) {
		t.Fatalf("of a server that hangs: %v, %v", stored, err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("gave up after %s", took)
	}
	server.Resume()
	harness.Eventually(t, wait, "the events are stored", func() (bool, string) {
		stored, err := s.PublishEvents(t.Context(), someEvents(5))
		return err == nil && !slices.Contains(stored, false), fmt.Sprint(err)
	})
	if ids := eventIDs(t, server); len(ids) != 5 {
		t.Errorf("the stream holds %v", ids)
	}
}

func TestOnlyWhoNamesAnAgeChangesThatOfTheEvents(t *testing.T) {
	server := harness.NATS(t)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	age := func() time.Duration {
		return get[jetstream.Stream](t)(js.Stream(t.Context(), stream.EventsStream)).CachedInfo().Config.MaxAge
	}
	for i, step := range []struct{ configured, want time.Duration }{
		{0, 7 * 24 * time.Hour}, {2 * time.Hour, 2 * time.Hour}, {0, 2 * time.Hour},
	} {
		open(t, server, func(c *stream.Config) { c.EventsMaxAge = step.configured })
		if got := age(); got != step.want {
			t.Errorf("step %d: the age is %s, want %s", i, got, step.want)
		}
	}
}
