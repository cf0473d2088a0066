package stock_test

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// giveback reads "USER ORDER SKU:QUANTITY..." as ask does.
func (s *till) giveback(id, text string) sale.Giveback {
	g := ask(text)
	return sale.Giveback{ID: id, SaleID: s.id, OrderID: g.Grant.OrderID, User: g.Grant.User, Lines: g.Grant.Lines}
}

func (s *till) release(id, text string) {
	s.t.Helper()
	if err := s.store.Release(s.t.Context(), s.giveback(id, text)); err != nil {
		s.t.Fatal(err)
	}
}

func TestGivebackOfAllUnitsFreesTheBuyer(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W W", 1, "ann ann1 A:1", "bob bob1 A:1")
	s.release("cancel:ann1", "ann ann1 A:1")
	s.requireKeys(
		"applied hash cancel:ann1=1",
		"buyers hash ann=0 ann1, bob=1 bob1",
		"grants hash ann1=p1 1|g ann1 ann A:1, bob1=p1 1|g bob1 bob A:1",
		"meta hash applied=1, buyers=2, era=ERA, fence=7, gen=1, grants=2",
		"outbox:p1 list 1/7/1/p1 ann1 bob1",
		"outboxes hash p1=0 0",
		"stock:A string 4",
	)
	s.grab("W A(bob1)", 1, "ann ann2 A:1", "bob bob2 A:1")
	d := s.grab("R(p1/1)", 1, "ann ann1 A:1")
	if d.Applied != 1 {
		t.Errorf("decision counts %d givebacks, want 1", d.Applied)
	}
}

func TestLastGivebackKeepsTheBuyersEntry(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	s.release("cancel:ann1", "ann ann1 A:1")
	s.requireKeys(
		"applied hash cancel:ann1=1",
		"buyers hash ann=0 ann1",
		"grants hash ann1=p1 1|g ann1 ann A:1",
		"meta hash applied=1, buyers=1, era=ERA, fence=7, gen=1, grants=1",
		"outbox:p1 list 1/7/1/p1 ann1",
		"outboxes hash p1=0 0",
		"stock:A string 5",
	)
	s.grab("W", 1, "ann ann2 A:1")
}

func TestPartialGivebackKeepsTheBuyer(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": 5})
	s.grab("W W", 5, "ann ann1 A:2 B:1", "ann ann2 A:1")
	s.release("return:r1", "ann ann1 A:1 B:1")
	s.requireKeys(
		"applied hash return:r1=2",
		"buyers hash ann=2 ann2",
		"grants hash ann1=p1 1|g ann1 ann A:2 B:1, ann2=p1 1|g ann2 ann A:1",
		"meta hash applied=1, buyers=1, era=ERA, fence=7, gen=1, grants=2",
		"outbox:p1 list 1/7/1/p1 ann1 ann2",
		"outboxes hash p1=0 0",
		"stock:A string 3",
		"stock:B string 5",
	)
	s.grab("L(2)", 2, "ann ann3 A:1")
}

func TestKnownGivebackChangesNothing(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 2, "ann ann1 A:2")
	s.release("return:r1", "ann ann1 A:1")
	keys, before := s.dump(), writes(t, s.client)
	s.release("return:r1", "ann ann1 A:1")
	if n := writes(t, s.client) - before; n != 0 {
		t.Errorf("a known giveback made %d changes", n)
	}
	if after := s.dump(); after != keys {
		t.Errorf("a known giveback left\n%s\nof\n%s", after, keys)
	}
}

func TestGivebackOfUnlimitedStockOnlyFreesTheUser(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(sale.Unlimited))
	s.grab("W", 1, "ann ann1 A:1")
	s.release("expire:ann1", "ann ann1 A:1")
	s.requireKeys(
		"applied hash expire:ann1=1",
		"buyers hash ann=0 ann1",
		"grants hash ann1=p1 1|g ann1 ann A:1",
		"meta hash applied=1, buyers=1, era=ERA, fence=7, gen=1, grants=1",
		"outbox:p1 list 1/7/1/p1 ann1",
		"outboxes hash p1=0 0",
		"stock:A string -1",
	)
}

func TestUpwardAdjustmentAddsUnitsAndTouchesNoUser(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(0))
	s.grab("S(A)", 1, "ann ann1 A:1")
	s.release("adjust:x", "- x A:3")
	s.requireKeys(
		"applied hash adjust:x=3",
		"meta hash applied=1, buyers=0, era=ERA, fence=7, gen=1, grants=0",
		"stock:A string 3",
	)
}

// The ledger may give back what this generation's counts never held, such as an
// order that was decided while a restore was reading.
func TestGivebackOfAUserWhoHoldsNothingReturnsTheStock(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.release("cancel:ann1", "ann ann1 A:1")
	s.requireKeys(
		"applied hash cancel:ann1=1",
		"meta hash applied=1, buyers=0, era=ERA, fence=7, gen=1, grants=0",
		"stock:A string 6",
	)
}

func TestGivebackToAnUnknownItemIsRefusedWhole(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	keys := s.dump()
	err := s.store.Release(t.Context(), s.giveback("cancel:ann1", "ann ann1 A:1 NONE:1"))
	requireReason(t, err, "damaged")
	if after := s.dump(); after != keys {
		t.Errorf("left\n%s\nof\n%s", after, keys)
	}
}

func TestGivebackToASaleThatIsNotLoadedIsRefused(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	if err := s.store.Close(t.Context(), s.id); err != nil {
		t.Fatal(err)
	}
	keys := s.dump()
	requireReason(t, s.store.Release(t.Context(), s.giveback("cancel:ann1", "ann ann1 A:1")), "no_state")
	if after := s.dump(); after != keys {
		t.Errorf("left\n%s\nof\n%s", after, keys)
	}
}
