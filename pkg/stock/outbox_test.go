package stock_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// openOutbox opens a till whose process made three batches.
func openOutbox(t *testing.T) *till {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	s.grab("W", 1, "ann ann1 A:1")
	s.grab("W", 1, "bob bob1 A:1")
	s.grab("W", 1, "cid cid1 A:1")
	return s
}

// trim carries a trim of the till's process out and requires this many batches
// to be left.
func (s *till) trim(t stock.Trim, want int64) {
	s.t.Helper()
	t.SaleID, t.Process = s.id, process
	left, err := s.store.Trim(s.t.Context(), t)
	if err != nil {
		s.t.Fatal(err)
	}
	if left != want {
		s.t.Fatalf("%d batches are left, want %d", left, want)
	}
}

func (s *till) requireOutboxes(want string) {
	s.t.Helper()
	if got := s.value(s.keys.Outboxes(), "hash"); got != want {
		s.t.Fatalf("outboxes are %q, want %q", got, want)
	}
}

func TestOutboxIsReadOldestFirst(t *testing.T) {
	s := openOutbox(t)
	for limit, want := range map[int64][]string{
		2: {"1/7/1/p1 ann1", "1/7/2/p1 bob1"},
		9: {"1/7/1/p1 ann1", "1/7/2/p1 bob1", "1/7/3/p1 cid1"},
	} {
		got := must(s.store.Outbox(t.Context(), s.id, process, limit))(t)
		if len(got) != len(want) {
			t.Fatalf("limit %d: got %d batches, want %d", limit, len(got), len(want))
		}
		for i, entry := range got {
			if text := batchText(t, string(entry)); text != want[i] {
				t.Errorf("limit %d, batch %d: got %s, want %s", limit, i, text, want[i])
			}
		}
	}
}

func TestTrimOfDurableBatches(t *testing.T) {
	s := openOutbox(t)
	for range 2 { // it may be repeated
		s.trim(stock.Trim{Through: 2, Durable: true}, 1)
		s.requireOutbox("1/7/3/p1 cid1")
		s.requireOutboxes("p1=2 0")
	}
	s.trim(stock.Trim{Through: 1, Durable: true}, 1)
	s.requireOutboxes("p1=2 0")
}

func TestTrimOfFencedBatchesDoesNotCallThemDurable(t *testing.T) {
	s := openOutbox(t)
	s.trim(stock.Trim{Through: 2}, 1)
	s.requireOutbox("1/7/3/p1 cid1")
	s.requireOutboxes("p1=0 0")
	s.requireFound("ann1", false)
}

func TestAProcessWithABarredBatchIsNotForgotten(t *testing.T) {
	s := openOutbox(t)
	s.trim(stock.Trim{Bar: 4}, 3)
	s.trim(stock.Trim{Through: 3, Durable: true, Forget: true}, 0)
	s.requireOutboxes("p1=3 4")
}

func TestProcessIsForgottenOnceItsOutboxIsEmpty(t *testing.T) {
	s := openOutbox(t)
	s.trim(stock.Trim{Through: 2, Durable: true, Forget: true}, 1)
	s.requireOutboxes("p1=2 0")
	s.trim(stock.Trim{Through: 3, Durable: true, Forget: true}, 0)
	if got := must(s.store.Outboxes(t.Context(), s.id))(t); len(got) != 0 {
		t.Fatalf("outboxes are %v, want none", got)
	}
	s.requireKeys(
		"buyers hash ann=1 ann1, bob=1 bob1, cid=1 cid1",
		"grants hash ann1=p1 1|g ann1 ann A:1, bob1=p1 2|g bob1 bob A:1, cid1=p1 3|g cid1 cid A:1",
		"meta hash applied=0, buyers=3, era=ERA, fence=7, gen=1, grants=3",
		"stock:A string 6",
	)
	s.grab("W", 1, "dan dan1 A:1")
	s.requireOutboxes("p1=0 0")
}

// A relay may have published for a process that then goes on.
func TestWhatIsDurableStaysDurableWhenItsProcessKnowsLess(t *testing.T) {
	s := openOutbox(t)
	s.trim(stock.Trim{Through: 3, Durable: true}, 0)
	s.grab("W", 1, "dan dan1 A:1") // acked 0
	s.requireOutboxes("p1=3 0")
	s.requireFound("cid1", true)
	s.requireFound("dan1", false)
}

func TestBarredBatchIsRefusedAndLaterOnesAreNot(t *testing.T) {
	s := openOutbox(t)
	late := s.batch(1, "dan dan1 A:1")
	s.trim(stock.Trim{Bar: late.Number}, 3)
	s.requireOutboxes("p1=0 4")
	keys := s.dump()
	if _, err := s.store.Grab(t.Context(), late); !errors.Is(err, stock.ErrBarred) {
		t.Fatalf("got %v, want ErrBarred", err)
	}
	if after := s.dump(); after != keys {
		t.Fatalf("a barred batch left\n%s\nof\n%s", after, keys)
	}
	s.trim(stock.Trim{Bar: 1}, 3)
	s.requireOutboxes("p1=0 4")
	s.grab("W", 1, "dan dan1 A:1")
	s.requireOutboxes("p1=0 4")
	s.trim(stock.Trim{Through: 5, Durable: true}, 0)
	s.requireOutboxes("p1=5 4")
}

func TestBarOfAProcessThatNeverSold(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	late := s.batch(1, "ann ann1 A:1")
	s.trim(stock.Trim{Bar: late.Number}, 0)
	if _, err := s.store.Grab(t.Context(), late); !errors.Is(err, stock.ErrBarred) {
		t.Fatalf("got %v, want ErrBarred", err)
	}
	s.grab("W", 1, "ann ann1 A:1")
}

// requireFound requires the order's grant to be there, as durable as said.
func (s *till) requireFound(orderID string, durable bool) {
	s.t.Helper()
	f, ok, err := s.store.Find(s.t.Context(), s.id, orderID)
	if err != nil || !ok || f.Durable != durable {
		s.t.Fatalf("grant %s: found %v, durable %v, error %v; want durable %v", orderID, ok, f.Durable, err, durable)
	}
	if want := ask(orderID[:3] + " " + orderID + " A:1").Record; string(f.Record) != string(want) {
		s.t.Fatalf("grant %s: record %q, want %q", orderID, f.Record, want)
	}
}

func TestGrantIsDurableOnceItsBatchIsKnownToBeInTheStream(t *testing.T) {
	s := openOutbox(t)
	s.requireFound("ann1", false)
	s.trim(stock.Trim{Through: 2, Durable: true}, 1)
	s.requireFound("ann1", true)
	s.requireFound("bob1", true)
	s.requireFound("cid1", false)
	if _, ok, err := s.store.Find(t.Context(), s.id, "dan1"); ok || err != nil {
		t.Errorf("grant that was never made: found %v, error %v", ok, err)
	}
	s.restore(units(8), annBought)
	s.requireFound("ann1", true)
	if _, ok, err := s.store.Find(t.Context(), s.id, "cid1"); ok || err != nil {
		t.Errorf("grant that was fenced out: found %v, error %v", ok, err)
	}
}

// Without its line in outboxes nothing is known of a process's batches: it may have
// been forgotten after they were fenced out, or the key may be lost.
func TestGrantOfAnUnknownProcessIsNotCalledDurable(t *testing.T) {
	s := openOutbox(t)
	s.trim(stock.Trim{Through: 3, Forget: true}, 0)
	s.requireFound("ann1", false)
}

func TestNothingIsFoundInAStateThatIsNotTrusted(t *testing.T) {
	s := openOutbox(t)
	if err := s.store.Close(t.Context(), s.id); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.store.Find(t.Context(), s.id, "dan1")
	requireReason(t, err, stock.ReasonNoState)
}

func TestStateTellsTheSizesOfALoadedSale(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": -1})
	s.grab("W W W", 4, "ann ann1 A:1 B:1", "ann ann2 A:1 B:1", "bob bob1 A:1")
	s.release("cancel:bob1", "bob bob1 A:1")
	before := writes(t, s.client)
	got := must(s.store.State(t.Context(), s.id, []string{"A", "B"}))(t)
	want := stock.State{
		Era: s.era, Generation: 1, Fence: 7, Buyers: 2, Grants: 3, Applied: 1, Remaining: map[string]int64{"A": 3, "B": -1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := writes(t, s.client) - before; n != 0 {
		t.Errorf("inspecting made %d changes", n)
	}
	_, err := s.store.State(t.Context(), s.id, []string{"A", "NONE"})
	requireReason(t, err, stock.ReasonDamaged)
}

func TestLeaseOfAProcessEndsByItself(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(1))
	alive := func() bool { return must(s.store.Alive(t.Context(), process))(t) }
	if alive() {
		t.Fatal("alive before its lease")
	}
	if err := s.store.Hold(t.Context(), process, time.Minute); err != nil {
		t.Fatal(err)
	}
	if !alive() {
		t.Fatal("not alive with a lease")
	}
	if err := s.store.Leave(t.Context(), process); err != nil {
		t.Fatal(err)
	}
	if alive() {
		t.Fatal("alive after it left")
	}
	if err := s.store.Hold(t.Context(), process, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 5*time.Second, "the lease ends", func() (bool, string) { return !alive(), "alive" })
}
