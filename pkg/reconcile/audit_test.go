package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// audit looks once, and requires it to find this drift.
func (s *shop) audit(want drift) {
	s.t.Helper()
	s.must(s.rec.Audit(s.t.Context()))
	if got := s.rec.audits.of(s.id).drift; fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Fatalf("the audit found %v, want %v", got, want)
	}
}

func TestAuditLoadsWhatIsNotLoaded(t *testing.T) {
	s := openShop(t, 2)
	s.audit(nil)
	s.requireState(2, 0, 0)
	s.grabs(0, 1)
	s.must(s.client.FlushAll(t.Context()).Err())
	s.audit(nil)
	s.sellOut(1, 1)
	s.requireSound()
}

func TestDriftThatPersistsIsRepaired(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(s *shop, keys stock.Keys) error
		drift  drift
	}{
		"units lost": {
			func(s *shop, k stock.Keys) error { return s.client.DecrBy(s.t.Context(), k.Stock("A"), 2).Err() },
			drift{"remaining:A": -2},
		},
		"units made up": {
			func(s *shop, k stock.Keys) error { return s.client.IncrBy(s.t.Context(), k.Stock("A"), 2).Err() },
			drift{"remaining:A": 2, "surplus:A": 2},
		},
		"a buyer lost, consistently": {
			func(s *shop, k stock.Keys) error {
				s.client.HDel(s.t.Context(), k.Buyers(), user(0))
				return s.client.HIncrBy(s.t.Context(), k.Meta(), "buyers", -1).Err()
			},
			drift{"buyers": -1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, 10)
			s.reconcile(ResultRestored, stock.ReasonNoState)
			s.grabs(0, 4)
			s.write(0)
			s.audit(nil)
			s.must(c.damage(s, stock.KeysOf(s.id)))
			s.rec.now = later(s.rec)
			s.audit(c.drift)
			s.requireGeneration(1)
			s.audit(nil) // the second look repairs
			s.requireGeneration(2)
			s.sellOut(4, 6)
			s.requireSound()
		})
	}
}

func (s *shop) requireGeneration(want int64) {
	s.t.Helper()
	if gen := s.state().Generation; gen != want {
		s.t.Fatalf("generation %d, want %d", gen, want)
	}
}

// later makes the next count of all orders due.
func later(r *Reconciler) func() time.Time {
	return func() time.Time { return time.Now().Add(r.cfg.DeepAuditInterval) }
}

// What is still on its way is no drift: batches on an outbox, in the stream, and
// givebacks that Redis does not have yet.
func TestWhatIsUnderWayIsNoDrift(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.audit(nil)
	d, err := s.decide(user(2))
	s.must(err)
	s.write(0)
	s.audit(nil)
	s.must(s.publish(d))
	s.audit(nil)
	s.write(0)
	g := s.cancel(user(0))
	s.audit(nil)
	s.must(s.rec.givebacks.Return(t.Context(), g))
	s.audit(nil)
	if s.rec.audits.of(s.id).soundAt.IsZero() {
		t.Error("the sale at rest was not found sound")
	}
	s.requireGeneration(1)
	s.requireSound()
}

// Surplus is seen while the sale is never at rest.
func TestSurplusIsFoundInTheMiddleOfASale(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 4)
	s.write(0)
	s.grabs(4, 5) // never written: the sale moves
	s.must(s.client.IncrBy(t.Context(), stock.KeysOf(s.id).Stock("A"), 3).Err())
	s.audit(drift{"surplus:A": 2}) // the third unit hides behind the unwritten grant
	s.audit(nil)
	s.requireGeneration(2)
	s.sellOut(5, 5)
	s.requireSound()
}

// Audits run all the time while many grab, cancel and write: none of them may
// take motion for drift.
func TestAuditsRaiseNoFalseAlarmInAStorm(t *testing.T) {
	s := openShop(t, 300)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	ctx, cancel := context.WithCancel(t.Context())
	var auditor sync.WaitGroup
	defer auditor.Wait()
	defer cancel()
	counted := &driftCounter{}
	rec := s.reconciler()
	rec.observe = counted
	auditor.Go(func() {
		for ctx.Err() == nil {
			if err := rec.Audit(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for i := range 150 {
		s.grabs(i, i+1)
		if i%5 == 0 {
			s.write(0)
			s.must(s.rec.givebacks.Return(t.Context(), s.cancel(user(i))))
		}
	}
	cancel()
	auditor.Wait()
	if n := counted.total(); n > 0 {
		t.Errorf("%d drifts were found in a sale that had none", n)
	}
	s.requireGeneration(1)
	s.requireSound()
}

// driftCounter counts what audits find.
type driftCounter struct {
	nothing
	mu sync.Mutex
	n  int
}

func (c *driftCounter) Drift(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *driftCounter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func TestRunLoadsServesAndRelaysUntilItIsStopped(t *testing.T) {
	harness.SharedMariaDB(t) // outlives the test
	harness.NoLeaks(t)
	s := openShop(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.rec.Run(ctx) }()
	s.awaitLoaded()
	d, err := s.decide(user(0)) // by a process without a lease: it is dead
	s.must(err)
	harness.Eventually(t, stepLimit, "the dead process's batch to be published", func() (bool, string) {
		left, err := s.store.Outboxes(t.Context(), s.id)
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
	s.write(0)
	if _, err := s.ledger.GetOrder(t.Context(), orderOf(d)); err != nil {
		t.Errorf("the relayed grant has no order: %v", err)
	}
	s.cancel(user(0)) // nobody applies it but the relay
	harness.Eventually(t, stepLimit, "the giveback to be applied", func() (bool, string) {
		st, err := s.store.State(t.Context(), s.id, []string{"A"})
		return err == nil && st.Remaining["A"] == 5, fmt.Sprint(st, err)
	})
	reply, err := s.stream.AskReconcile(t.Context(), s.id, ReasonForced)
	s.must(err)
	var report Report
	s.must(json.Unmarshal(reply, &report))
	if report.Result != ResultRestored || report.Reason != ReasonForced {
		t.Errorf("the answer to a request is %+v, want a forced restore", report)
	}
	if _, err := s.stream.AskReconcile(t.Context(), "no-such-sale", ReasonForced); err == nil {
		t.Error("a request for an unknown sale was answered without an error")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	s.requireSound()
}

func orderOf(d stock.Decision) string {
	batch, err := sale.DecodeBatch(d.Body)
	if err != nil {
		panic(err)
	}
	return batch.Grants[0].OrderID
}

func (s *shop) awaitLoaded() {
	s.t.Helper()
	harness.Eventually(s.t, stepLimit, "the sale to be loaded", func() (bool, string) {
		_, err := s.store.State(s.t.Context(), s.id, []string{"A"})
		return err == nil, fmt.Sprint(err)
	})
}
