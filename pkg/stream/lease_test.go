package stream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// acquire takes a lease that the test gives back.
func acquire(t *testing.T, s *stream.Stream, name string) *stream.Lease {
	t.Helper()
	l := get[*stream.Lease](t)(s.Acquire(t.Context(), name, time.Second))
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func isLost(l *stream.Lease) func() (bool, string) {
	return func() (bool, string) {
		select {
		case <-l.Lost():
			return true, ""
		default:
			return false, "it is not lost"
		}
	}
}

func TestALeaseHasOneHolder(t *testing.T) {
	server := harness.NATS(t)
	const rivals = 8
	winners := make(chan *stream.Lease, rivals)
	var wg sync.WaitGroup
	s := open(t, server)
	for range rivals {
		wg.Go(func() {
			l, err := s.Acquire(t.Context(), "job", time.Minute)
			if err == nil {
				winners <- l
				return
			}
			if !errors.Is(err, stream.ErrHeld) {
				t.Errorf("acquire: %v", err)
			}
		})
	}
	wg.Wait()
	if n := len(winners); n != 1 {
		t.Fatalf("%d hold the lease", n)
	}
	acquire(t, s, "other-job")
	must(t, (<-winners).Release(t.Context()))
}

func TestAReleasedLeaseIsFreeAtOnce(t *testing.T) {
	s := open(t, harness.NATS(t))
	for range 3 {
		l := get[*stream.Lease](t)(s.Acquire(t.Context(), "job", time.Hour))
		_, err := s.Acquire(t.Context(), "job", time.Hour)
		wantError(t, err, stream.ErrHeld)
		must(t, l.Release(t.Context()))
		must(t, l.Release(t.Context()))
	}
}

func TestALeaseOutlivesItsTimeToLiveWhileItsHolderLives(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	l := acquire(t, s, "job")
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	bucket := get[jetstream.KeyValue](t)(js.KeyValue(t.Context(), stream.LeasesBucket))
	first := get[jetstream.KeyValueEntry](t)(bucket.Get(t.Context(), "job")).Created()
	harness.Eventually(t, wait, "three times its time to live has passed", func() (bool, string) {
		entry, err := bucket.Get(t.Context(), "job")
		must(t, err) // never gone, not for a moment
		return entry.Created().Sub(first) > 3*time.Second, entry.Created().String()
	})
	if lost, _ := isLost(l)(); lost {
		t.Fatal("it was lost")
	}
	_, err := s.Acquire(t.Context(), "job", time.Second)
	wantError(t, err, stream.ErrHeld)
}

func TestALeasePassesOnAfterItsHolderDies(t *testing.T) {
	server := harness.NATS(t)
	between := newProxy(t, server.URL())
	s, dying := open(t, server), openOnly(t, between.url(), quick)
	must(t, dying.AwaitTopology(t.Context()))
	l := acquire(t, dying, "job")
	_, err := s.Acquire(t.Context(), "job", time.Second)
	wantError(t, err, stream.ErrHeld)
	between.listener.Close() // the holder is cut off for good
	between.cut()
	harness.Eventually(t, wait, "the holder knows it", isLost(l))
	harness.Eventually(t, wait, "another gets it", func() (bool, string) {
		next, err := s.Acquire(t.Context(), "job", time.Second)
		if err == nil {
			must(t, next.Release(t.Context()))
		}
		return err == nil, errText(err)
	})
}

func TestALeaseSurvivesALostAnswer(t *testing.T) {
	server := harness.NATS(t)
	between := newProxy(t, server.URL())
	lossy := openOnly(t, between.url(), quick)
	must(t, lossy.AwaitTopology(t.Context()))
	l := get[*stream.Lease](t)(lossy.Acquire(t.Context(), "job", 4*time.Second))
	between.loseAnswersAfter("HPUB $KV.LEASES.job ")
	harness.Eventually(t, wait, "the answer to a renewal is lost", func() (bool, string) { return between.lost() == 1, "not yet" })
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	bucket := get[jetstream.KeyValue](t)(js.KeyValue(t.Context(), stream.LeasesBucket))
	renewed := get[jetstream.KeyValueEntry](t)(bucket.Get(t.Context(), "job")).Revision()
	harness.Eventually(t, wait, "it is renewed twice more", func() (bool, string) {
		entry, err := bucket.Get(t.Context(), "job")
		must(t, err)
		return entry.Revision() >= renewed+2, entry.Created().String()
	})
	if lost, _ := isLost(l)(); lost {
		t.Fatal("it was lost")
	}
	must(t, l.Release(t.Context()))
	l = get[*stream.Lease](t)(lossy.Acquire(t.Context(), "job", 4*time.Second))
	must(t, l.Release(t.Context()))
}

func TestALeaseThatAnotherTookIsLost(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	l := acquire(t, s, "job")
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	bucket := get[jetstream.KeyValue](t)(js.KeyValue(t.Context(), stream.LeasesBucket))
	get[uint64](t)(bucket.Put(t.Context(), "job", []byte("another's")))
	harness.Eventually(t, wait, "the holder knows it", isLost(l))
	must(t, l.Release(t.Context()))
	if entry := get[jetstream.KeyValueEntry](t)(bucket.Get(t.Context(), "job")); string(entry.Value()) != "another's" {
		t.Fatal("the loser released the other's lease")
	}
}

func TestALeaseSurvivesARestartOfTheServer(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	l := get[*stream.Lease](t)(s.Acquire(t.Context(), "job", 20*time.Second))
	server.Kill()
	server.Start()
	harness.Eventually(t, wait, "the client is back", func() (bool, string) { return s.Reachable(), "not reachable" })
	_, err := s.Acquire(t.Context(), "job", time.Second)
	wantError(t, err, stream.ErrHeld)
	if lost, _ := isLost(l)(); lost {
		t.Fatal("it was lost")
	}
	must(t, l.Release(t.Context()))
}

func TestALeaseThatCannotBeIsRefused(t *testing.T) {
	s := open(t, harness.NATS(t))
	for name, ttl := range map[string]time.Duration{
		"": time.Second, "a.b": time.Second, "*": time.Second,
		"short": time.Second - 1, "long": 2 * time.Hour, "half": 1500 * time.Millisecond,
	} {
		if _, err := s.Acquire(t.Context(), name, ttl); err == nil {
			t.Errorf("lease %q for %v was given", name, ttl)
		}
	}
}
