package stream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// flowOf is a flow control in which only the users' rate is set.
func flowOf(rate float64) stream.FlowControl {
	return stream.FlowControl{PerUser: &stream.Rate{Rate: rate, Burst: 3}}
}

// set stores a flow control.
func set(t testing.TB, s *stream.Stream, f stream.FlowControl) (revision uint64) {
	t.Helper()
	_, revision, err := s.ChangeFlowControl(t.Context(), func(have *stream.FlowControl) error { *have = f; return nil })
	must(t, err)
	return revision
}

// text shows a flow control as it is stored.
func text(f stream.FlowControl) string {
	encoded, _ := json.Marshal(f)
	return string(encoded)
}

// control is the bucket as anybody else writes to it.
func control(t testing.TB, server *harness.NATSServer) jetstream.KeyValue {
	t.Helper()
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	return get[jetstream.KeyValue](t)(js.KeyValue(t.Context(), stream.ControlBucket))
}

func TestAFlowControlComesBackAsItWasStored(t *testing.T) {
	s := open(t, harness.NATS(t))
	f, revision, err := s.FlowControl(t.Context())
	must(t, err)
	if revision != 0 || text(f) != "{}" {
		t.Fatalf("at first it is %s, revision %d", text(f), revision)
	}
	most := int64(7)
	want := stream.FlowControl{PerUser: &stream.Rate{Rate: 0.5, Burst: 2}, PerIP: &stream.Rate{}, InFlightMax: &most}
	stored := set(t, s, want)
	if f, revision, err = s.FlowControl(t.Context()); err != nil || text(f) != text(want) || revision != stored || stored == 0 {
		t.Fatalf("it is %s, revision %d of %d: %v", text(f), revision, stored, err)
	}
	if again := set(t, s, want); again != stored {
		t.Errorf("storing the same again made revision %d of %d", again, stored)
	}
}

func TestAFlowControlOutOfRangeIsNotStored(t *testing.T) {
	s := open(t, harness.NATS(t))
	stored := set(t, s, flowOf(5))
	number := func(n int64) *int64 { return &n }
	for field, f := range map[string]stream.FlowControl{
		"per_user.rate":  {PerUser: &stream.Rate{Rate: -0.1, Burst: 1}},
		"per_ip.rate":    {PerIP: &stream.Rate{Rate: stream.MaxRate + 1, Burst: 1}},
		"per_ip.burst":   {PerIP: &stream.Rate{Rate: 0.1}},
		"per_user.burst": {PerUser: &stream.Rate{Rate: 1, Burst: stream.MaxBurst + 1}},
		"in_flight_max":  {InFlightMax: number(0)},
	} {
		_, _, err := s.ChangeFlowControl(t.Context(), func(have *stream.FlowControl) error { *have = f; return nil })
		if wrong, ok := errors.AsType[*sale.FieldError](err); !ok || wrong.Field != field {
			t.Errorf("%s: the error is %v", field, err)
		}
	}
	_, _, err := s.ChangeFlowControl(t.Context(), func(have *stream.FlowControl) error {
		have.PerIP = &stream.Rate{Rate: math.NaN(), Burst: 1}
		return nil
	})
	if err == nil {
		t.Error("a rate that is no number was stored")
	}
	if f, revision, err := s.FlowControl(t.Context()); err != nil || revision != stored || text(f) != text(flowOf(5)) {
		t.Errorf("after refusals it is %s, revision %d of %d: %v", text(f), revision, stored, err)
	}
}

func TestChangesOfTheFlowControlAtTheSameTimeAllHappen(t *testing.T) {
	server := harness.NATS(t)
	const each, writers = 5, 4
	var wg sync.WaitGroup
	for range writers {
		s := open(t, server)
		wg.Go(func() {
			for range each {
				_, _, err := s.ChangeFlowControl(t.Context(), func(f *stream.FlowControl) error {
					next := int64(1)
					if f.InFlightMax != nil {
						next = *f.InFlightMax + 1
					}
					f.InFlightMax = &next
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	f, _, err := open(t, server).FlowControl(t.Context())
	must(t, err)
	if f.InFlightMax == nil || *f.InFlightMax != writers*each {
		t.Errorf("%s after %d changes", text(f), writers*each)
	}
}

// ear hears what a watch of the flow control tells.
type ear struct {
	mu       sync.Mutex
	heard    stream.FlowControl
	revision uint64
	times    int
}

func (e *ear) update(f stream.FlowControl, revision uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.revision = f, revision
	e.times++
}

func (e *ear) hears(want stream.FlowControl) func() (bool, string) {
	return func() (bool, string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.times > 0 && text(e.heard) == text(want), fmt.Sprintf("it heard %s, revision %d", text(e.heard), e.revision)
	}
}

func TestAWatchTellsTheFlowControlAndItsChanges(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	var e ear
	w := open(t, server).WatchFlowControl(e.update)
	run(t, w.Run)
	select {
	case <-w.Ready():
	case <-time.After(wait):
		t.Fatal("the watch is not ready")
	}
	if ok, detail := e.hears(stream.FlowControl{})(); !ok {
		t.Fatal("nothing is stored, and " + detail)
	}
	for rate := 1.0; rate <= 3; rate++ {
		set(t, s, flowOf(rate))
		harness.Eventually(t, time.Second, "the change is told", e.hears(flowOf(rate)))
		server.Kill()
		server.Start()
		harness.Eventually(t, wait, "the client is back", func() (bool, string) {
			err := s.Connected(t.Context())
			return err == nil, errText(err)
		})
	}
	must(t, control(t, server).Delete(t.Context(), "flow"))
	harness.Eventually(t, wait, "the deletion is told", e.hears(stream.FlowControl{}))
}

func TestAFlowControlThatCantBeReadChangesNothing(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	var e ear
	run(t, s.WatchFlowControl(e.update).Run)
	bucket := control(t, server)
	for i, bad := range []string{
		``, `null x`, `{"per_user":{"rate":-1,"burst":1}}`, `{"per_user":{"rate":1,"burst":0}}`, `{"in_flight_max":0}`,
		`{"per_usr":{"rate":1,"burst":1}}`, `{"per_user":{"rate":1,"burst":1}}{}`, `{"per_ip":{"rate":"1"}}`,
	} {
		good := flowOf(float64(i + 1))
		set(t, s, good)
		harness.Eventually(t, wait, "the change is told", e.hears(good))
		get[uint64](t)(bucket.Put(t.Context(), "flow", []byte(bad)))
		if _, _, err := s.FlowControl(t.Context()); !errors.Is(err, stream.ErrFlowControl) {
			t.Errorf("%s was read: %v", bad, err)
		}
		// The watch tells in order: once it tells the good one again, it has passed the bad one.
		before := e.count()
		get[uint64](t)(bucket.Put(t.Context(), "flow", []byte(text(good))))
		harness.Eventually(t, wait, "the good one is told again", func() (bool, string) { return e.count() > before, "" })
		if got := e.count(); got != before+1 {
			t.Errorf("%s was told: %d times for one", bad, got-before)
		}
	}
}

func (e *ear) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.times
}

func TestALostBucketLeavesFlowControlToTheProcesses(t *testing.T) {
	server := harness.NATS(t)
	between := newProxy(t, server.URL())
	near, far := open(t, server), openOnly(t, between.url())
	set(t, near, flowOf(4))
	var e ear
	run(t, far.WatchFlowControl(e.update).Run)
	harness.Eventually(t, wait, "the flow control is told", e.hears(flowOf(4)))
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteKeyValue(t.Context(), stream.ControlBucket))
	must(t, near.EnsureTopology(t.Context()))
	between.cut()
	harness.Eventually(t, wait, "nothing is in force", e.hears(stream.FlowControl{}))
}
