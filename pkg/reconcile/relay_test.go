package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

func TestOutboxOfALiveProcessIsLeftAlone(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.must(s.store.Hold(t.Context(), s.process, time.Minute))
	_, err := s.decide(user(0))
	s.must(err)
	s.must(s.rec.RelayAll(t.Context()))
	s.requireOutbox(1)
	s.must(s.store.Leave(t.Context(), s.process))
	s.must(s.rec.RelayAll(t.Context()))
	s.requireOutbox(0)
	s.sellOut(1, 4)
	s.requireSound()
}

func TestASaleThatIsNewerThanTheListOfSalesIsRelayed(t *testing.T) {
	s := openShop(t, 5)
	s.rec.sales.at = s.rec.now() // a list without any
	s.reconcile(ResultRestored, stock.ReasonNoState)
	_, err := s.decide(user(0))
	s.must(err)
	s.must(s.rec.RelayAll(t.Context()))
	s.requireOutbox(0)
	s.requireSound()
}

func (s *shop) requireOutbox(want int) {
	s.t.Helper()
	batches, err := s.store.Outbox(s.t.Context(), s.id, s.process, 100)
	s.must(err)
	if len(batches) != want {
		s.t.Fatalf("%d batches on the outbox, want %d", len(batches), want)
	}
}

func TestOrphanedBatchesArePublishedOldestFirst(t *testing.T) {
	s := openShop(t, 1000)
	s.rec.relay.page = 3
	s.reconcile(ResultRestored, stock.ReasonNoState)
	for i := range 10 {
		_, err := s.decide(user(i))
		s.must(err)
	}
	relayed, err := s.rec.relay.Orphans(t.Context(), s.id)
	s.must(err)
	if relayed.Published != 10 || relayed.Fenced != 0 {
		t.Errorf("relayed %+v, want 10 published", relayed)
	}
	last := uint64(0)
	s.must(s.stream.ReadGrants(t.Context(), s.id, 0, s.lastSeq(), func(_ uint64, b sale.Batch) error {
		if b.Number != last+1 {
			t.Errorf("batch %d follows %d", b.Number, last)
		}
		last = b.Number
		return nil
	}))
	if last != 10 {
		t.Errorf("the stream ends with batch %d, want 10", last)
	}
	if known, err := s.store.Outboxes(t.Context(), s.id); err != nil || len(known) > 0 {
		t.Errorf("processes %v are still known, error %v", known, err)
	}
	s.requireSound()
}

func TestABatchThatWasPublishedButNotTrimmedCountsOnce(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	d, err := s.decide(user(0))
	s.must(err)
	if _, err := s.stream.Publish(t.Context(), s.id, d.Head, d.Body); err != nil {
		t.Fatal(err)
	}
	s.must(s.rec.RelayAll(t.Context()))
	s.requireOutbox(0)
	s.must(s.client.FlushAll(t.Context()).Err())
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.requireState(4, 1, 1)
	s.requireSound()
}

func TestAGivebackOfASaleThatIsNotLoadedWaitsForItsRestore(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.write(0)
	s.must(s.client.FlushAll(t.Context()).Err())
	g := s.cancel(user(0))
	s.must(s.rec.givebacks.Return(t.Context(), g))
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(1)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.requireState(4, 2, 2)
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(0)
	s.requireState(4, 2, 2)
	s.requireSound()
}

func (s *shop) requireUnapplied(want int) {
	s.t.Helper()
	left, err := s.ledger.UnappliedGivebacks(s.t.Context(), nil, 100)
	s.must(err)
	if len(left) != want {
		s.t.Fatalf("%d givebacks are unapplied, want %d", len(left), want)
	}
}

// One sale's key in Redis is broken, and it has more givebacks than a look reads
// at a time. Those of the sale behind it are applied all the same.
func TestAFailingSaleDoesNotKeepTheGivebacksOfOthers(t *testing.T) {
	const many = 25
	s := openShop(t, many)
	sick, well := s.id+"-a", s.id+"-b"
	for _, id := range []string{sick, well} {
		s.id = id
		s.create(id, many, sale.StatusApproved)
		s.reconcile(ResultRestored, stock.ReasonNoState)
		s.grabs(0, many)
	}
	s.rec.cfg.RelayPage = 4
	for _, id := range []string{sick, well} {
		s.id = id
		s.write(0)
		for i := range many - 1 {
			s.cancel(user(i))
		}
	}
	s.must(s.client.Set(t.Context(), stock.KeysOf(sick).Applied(), "garbage", 0).Err())
	err := s.rec.RelayAll(t.Context())
	if err == nil || strings.Count(err.Error(), "relay givebacks of sale "+sick) != 1 {
		t.Errorf("the look ended with %v, want one failure of the sick sale", err)
	}
	s.requireUnapplied(many - 1)
	s.requireState(many-1, many, many)
	s.id = sick
	s.reconcile(ResultRestored, stock.ReasonDamaged)
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(0)
	s.requireState(many-1, many, many)
}

// A grant is pending when its sale ends, and then Redis loses everything. The sale
// is restored until its retention is over: the order gets its answer, and what is
// cancelled late is given back.
func TestAnEndedSaleIsRestoredForPendingOrdersAndLateCancellations(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.write(0)
	s.grabs(2, 3) // not written
	_, err := s.ledger.UpdateStatus(t.Context(), s.id, []sale.Status{sale.StatusApproved}, sale.StatusEnded)
	s.must(err)
	s.must(s.client.FlushAll(t.Context()).Err())
	s.cancel(user(0))
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(1)
	s.must(s.rec.Audit(t.Context()))
	if f, ok, err := s.store.Find(t.Context(), s.id, sale.OrderID(s.id, user(2), key(user(2)))); err != nil || !ok || !f.Durable {
		t.Errorf("the pending order's grant: found %v, durable %v, error %v", ok, f.Durable, err)
	}
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(0)
	s.requireState(3, 3, 3)
	s.requireSound()
}

// Nothing loads a sale again that is over, so its givebacks must not wait for that.
func TestGivebacksOfSalesThatAreOverDoNotWaitForEver(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 1)
	s.write(0)
	s.must(s.client.FlushAll(t.Context()).Err())
	s.cancel(user(0))
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(1)
	s.rec.now = func() time.Time { return time.Now().Add(2*time.Hour + 24*time.Hour) }
	s.must(s.rec.RelayAll(t.Context()))
	s.requireUnapplied(0)
}

func TestASaleThatIsOverForLongIsFreedAndComesBackWhenItsEndMoves(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.write(0)
	s.rec.now = func() time.Time { return time.Now().Add(2*time.Hour + 24*time.Hour) }
	s.must(s.rec.Audit(t.Context()))
	left, err := s.client.Keys(t.Context(), "doorbuster:{"+s.id+"}:*").Result()
	s.must(err)
	if len(left) > 1 || len(left) == 1 && left[0] != stock.KeysOf(s.id).Outboxes() {
		t.Errorf("keys %v are left of a sale that is over", left)
	}
	s.reconcile(ResultNotLoadable, ReasonForced)
	s.rec.now = time.Now
	s.must(s.rec.Audit(t.Context()))
	s.sellOut(2, 3)
	s.requireSound()
}
