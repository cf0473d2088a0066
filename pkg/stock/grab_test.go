package stock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// requireBody requires the newest outbox entry to be the decision's body, byte
// for byte, and the body to hold these orders.
func (s *till) requireBody(d stock.Decision, want string) {
	s.t.Helper()
	entry := must(s.client.LIndex(s.t.Context(), s.keys.Outbox(process), 0).Bytes())(s.t)
	if string(entry) != string(d.Body) {
		s.t.Fatalf("outbox holds %q, the decision's body is %q", entry, d.Body)
	}
	if got := batchText(s.t, string(d.Body)); got != want {
		s.t.Fatalf("body is %s, want %s", got, want)
	}
}

func TestFreshSaleHasOnlyItsStockAndMeta(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": 0, "C": -1})
	s.requireKeys(
		"meta hash applied=0, buyers=0, era=ERA, fence=7, gen=1, grants=0",
		"stock:A string 5",
		"stock:B string 0",
		"stock:C string -1",
	)
}

func TestWinTakesStockAndIsRecordedEverywhere(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	d := s.grab("W", 1, "ann ann1 A:1")
	s.requireBody(d, "1/7/1/p1 ann1")
	s.requireKeys(
		"buyers hash ann=1 ann1",
		"grants hash ann1=p1 1|g ann1 ann A:1",
		"meta hash applied=0, buyers=1, era=ERA, fence=7, gen=1, grants=1",
		"outbox:p1 list 1/7/1/p1 ann1",
		"outboxes hash p1=0 0",
		"stock:A string 4",
	)
	if d.Remaining["A"] != 4 || d.Applied != 0 {
		t.Errorf("decision says %d left and %d givebacks, want 4 and 0", d.Remaining["A"], d.Applied)
	}
}

func TestReplayInItsGenerationIsSentAgain(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.grab("W", 1, "ann ann1 A:1")
	d := s.grab("R(p1/1)", 1, "ann ann1 A:1")
	s.requireBody(d, "1/7/2/p1 ann1")
	s.requireKeys(
		"buyers hash ann=1 ann1",
		"grants hash ann1=p1 1|g ann1 ann A:1",
		"meta hash applied=0, buyers=1, era=ERA, fence=7, gen=1, grants=1",
		"outbox:p1 list 1/7/2/p1 ann1, 1/7/1/p1 ann1",
		"outboxes hash p1=0 0",
		"stock:A string 4",
	)
}

func TestReplayKeepsWhatWasGrantedFirst(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": 5})
	first := s.grab("W", 1, "ann ann1 A:1")
	second := s.grab("R(p1/1)", 1, "ann ann1 B:1")
	_, want, _ := sale.ParseHead(first.Body)
	_, got, _ := sale.ParseHead(second.Body)
	if string(got) != string(want) {
		t.Errorf("replay sends %q, granted was %q", got, want)
	}
	if second.Remaining["B"] != 5 {
		t.Errorf("a replay took stock: %d left of 5", second.Remaining["B"])
	}
}

func TestRestoredGrantIsDurableAndNotSentAgain(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	s.restore(units(4), annBought)
	before := writes(t, s.client)
	d := s.grab("R(-/0)", 1, "ann ann1 A:1")
	if d.Body != nil {
		t.Errorf("a restored grant is sent again: %q", d.Body)
	}
	if n := writes(t, s.client) - before; n != 0 {
		t.Errorf("replay of a restored grant made %d changes", n)
	}
	s.requireKeys(
		"buyers hash ann=1 ann1",
		"grants hash ann1=- 0|g ann1 ann A:1",
		"meta hash applied=0, buyers=1, era=ERA, fence=8, gen=2, grants=1",
		"stock:A string 4",
	)
}

func TestOneOrderTwiceInABatchIsOneGrantAndSentOnce(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	d := s.grab("W R(p1/1)", 1, "ann ann1 A:1", "ann ann1 A:1")
	s.requireBody(d, "1/7/1/p1 ann1")
	d = s.grab("R(p1/1) W R(p1/1)", 1, "ann ann1 A:1", "bob bob1 A:1", "ann ann1 A:1")
	s.requireBody(d, "1/7/2/p1 bob1 ann1")
	s.requireKeys(
		"buyers hash ann=1 ann1, bob=1 bob1",
		"grants hash ann1=p1 1|g ann1 ann A:1, bob1=p1 2|g bob1 bob A:1",
		"meta hash applied=0, buyers=2, era=ERA, fence=7, gen=1, grants=2",
		"outbox:p1 list 1/7/2/p1 bob1 ann1, 1/7/1/p1 ann1",
		"outboxes hash p1=0 0",
		"stock:A string 3",
	)
}

func TestRefusalsWriteNothing(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 2, "B": 0})
	s.grab("W W", 2, "ann ann1 A:1", "bob bob1 A:1")
	keys, before := s.dump(), writes(t, s.client)
	s.grab("A(ann1)", 1, "ann ann2 A:1")
	s.grab("L(1)", 2, "ann ann3 A:2")
	s.grab("L(0)", 2, "cid cid1 A:3")
	s.grab("S(A)", 0, "dan dan1 A:1")
	s.grab("S(B)", 0, "dan dan2 B:1")
	if n := writes(t, s.client) - before; n != 0 {
		t.Errorf("refusals made %d changes", n)
	}
	if after := s.dump(); after != keys {
		t.Errorf("refusals left\n%s\nof\n%s", after, keys)
	}
}

func TestLimitOfOne(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	s.grab("L(0) W A(ann2) W A(bob1)", 1, "ann ann1 A:2", "ann ann2 A:1", "ann ann3 A:1", "bob bob1 A:1", "bob bob2 A:1")
	s.grab("A(ann2) A(bob1)", 1, "ann ann4 A:1", "bob bob3 A:1")
}

func TestLimitOfSeveral(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	s.grab("W L(2) W L(3)", 3, "ann ann1 A:2", "ann ann2 A:2", "ann ann3 A:1", "ann ann4 A:1")
	s.grab("L(3) W", 3, "ann ann5 A:1", "bob bob1 A:3")
	s.requireKeys(
		"buyers hash ann=3 ann3, bob=3 bob1",
		"grants hash ann1=p1 1|g ann1 ann A:2, ann3=p1 1|g ann3 ann A:1, bob1=p1 2|g bob1 bob A:3",
		"meta hash applied=0, buyers=2, era=ERA, fence=7, gen=1, grants=3",
		"outbox:p1 list 1/7/2/p1 bob1, 1/7/1/p1 ann1 ann3",
		"outboxes hash p1=0 0",
		"stock:A string 3",
	)
}

func TestNoLimit(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	s.grab("W W W S(A)", 0, "ann ann1 A:4", "ann ann2 A:4", "ann ann3 A:1", "ann ann4 A:1")
	s.requireKeys(
		"buyers hash ann=9 ann3",
		"grants hash ann1=p1 1|g ann1 ann A:4, ann2=p1 1|g ann2 ann A:4, ann3=p1 1|g ann3 ann A:1",
		"meta hash applied=0, buyers=1, era=ERA, fence=7, gen=1, grants=3",
		"outbox:p1 list 1/7/1/p1 ann1 ann2 ann3",
		"outboxes hash p1=0 0",
		"stock:A string 0",
	)
}

func TestLoweredLimitRefusesWhoHoldsMore(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	s.grab("W", 5, "ann ann1 A:5")
	s.grab("L(5)", 3, "ann ann2 A:1")
	s.grab("A(ann1)", 1, "ann ann2 A:1")
}

func TestOrderOfArrivalDecides(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(3))
	d := s.grab("W S(A) W S(A)", 0, "ann ann1 A:2", "bob bob1 A:2", "cid cid1 A:1", "dan dan1 A:1")
	s.requireBody(d, "1/7/1/p1 ann1 cid1")
}

func TestCartIsAllOrNothing(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), map[string]int64{"A": 5, "B": 1, "C": -1})
	d := s.grab("W S(B) W", 0, "ann ann1 A:2 B:1 C:3", "bob bob1 A:1 B:1", "cid cid1 A:3 C:9")
	s.requireBody(d, "1/7/1/p1 ann1 cid1")
	s.requireKeys(
		"buyers hash ann=6 ann1, cid=12 cid1",
		"grants hash ann1=p1 1|g ann1 ann A:2 B:1 C:3, cid1=p1 1|g cid1 cid A:3 C:9",
		"meta hash applied=0, buyers=2, era=ERA, fence=7, gen=1, grants=2",
		"outbox:p1 list 1/7/1/p1 ann1 cid1",
		"outboxes hash p1=0 0",
		"stock:A string 0",
		"stock:B string 0",
		"stock:C string -1",
	)
	if d.Remaining["A"] != 0 || d.Remaining["B"] != 0 || d.Remaining["C"] != sale.Unlimited {
		t.Errorf("decision says %v is left", d.Remaining)
	}
}

func TestCartThatNamesAnItemTwiceAsksForTheSum(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(3))
	s.grab("S(A)", 0, "ann ann1 A:2 A:2")
	s.grab("L(0) W", 3, "ann ann1 A:2 A:2", "ann ann2 A:1 A:2")
	if left := must(s.client.Get(t.Context(), s.keys.Stock("A")).Result())(t); left != "0" {
		t.Errorf("%s units are left, want 0", left)
	}
}

func TestUnlimitedStockNeverChanges(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(sale.Unlimited))
	d := s.grab("W W", 0, "ann ann1 A:1000000", "bob bob1 A:1000000")
	if d.Remaining["A"] != sale.Unlimited {
		t.Errorf("decision says %d is left", d.Remaining["A"])
	}
	if left := must(s.client.Get(t.Context(), s.keys.Stock("A")).Result())(t); left != "-1" {
		t.Errorf("stock key holds %s", left)
	}
}

func TestAdjustmentTakesStockAndNoUserHoldsIt(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	d := s.grab("W W S(A)", 1, "- adj1 A:4", "- adj2 A:4", "- adj3 A:2")
	s.requireBody(d, "1/7/1/p1 adj1 adj2")
	s.grab("R(p1/1)", 1, "- adj1 A:4")
	s.requireKeys(
		"grants hash adj1=p1 1|a adj1  A:4, adj2=p1 1|a adj2  A:4",
		"meta hash applied=0, buyers=0, era=ERA, fence=7, gen=1, grants=2",
		"outbox:p1 list 1/7/2/p1 adj1, 1/7/1/p1 adj1 adj2",
		"outboxes hash p1=0 0",
		"stock:A string 1",
	)
}

func TestAdjustmentMayTakeTheLargestStock(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(sale.MaxStock))
	d := s.grab("W S(A)", 1, fmt.Sprintf("- adj1 A:%d", sale.MaxStock), "ann ann1 A:1")
	if d.Remaining["A"] != 0 {
		t.Errorf("%d units are left", d.Remaining["A"])
	}
}

func TestTrimRidesOnTheNextWin(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	for _, text := range []string{"ann ann1 A:1", "bob bob1 A:1", "cid cid1 A:1"} {
		s.grab("W", 1, text)
	}
	refusal := s.batch(1, "ann ann2 A:1")
	refusal.Acked = 2
	s.decide("A(ann1)", refusal)
	s.requireOutbox("1/7/3/p1 cid1", "1/7/2/p1 bob1", "1/7/1/p1 ann1")

	win := s.batch(1, "dan dan1 A:1")
	win.Acked = 2
	s.decide("W", win)
	s.requireOutbox("1/7/5/p1 dan1", "1/7/3/p1 cid1")
	if got := must(s.store.Outboxes(t.Context(), s.id))(t); len(got) != 1 || got[process] != 2 {
		t.Errorf("outboxes are %v, want p1 at 2", got)
	}
}

// requireOutbox requires the batches of the till's process, newest first.
func (s *till) requireOutbox(want ...string) {
	s.t.Helper()
	got := s.value(s.keys.Outbox(process), "list")
	if got != strings.Join(want, ", ") {
		s.t.Fatalf("outbox holds %q, want %q", got, want)
	}
}

func TestLargestBatch(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(stock.MaxAsks))
	var asks []string
	for i := range stock.MaxAsks {
		asks = append(asks, fmt.Sprintf("user%d order%d A:1", i, i))
	}
	d := s.grab(strings.TrimSpace(strings.Repeat("W ", stock.MaxAsks)), 1, asks...)
	if d.Remaining["A"] != 0 {
		t.Errorf("%d units are left", d.Remaining["A"])
	}
	before := writes(t, s.client)
	_, err := s.store.Grab(t.Context(), s.batch(0, append(asks, "zoe zoe1 A:1")...))
	if !errors.Is(err, stock.ErrBatch) {
		t.Errorf("one grab too many: got %v, want ErrBatch", err)
	}
	if n := writes(t, s.client) - before; n != 0 {
		t.Errorf("a batch that is too large made %d changes", n)
	}
}

func TestBatchThatCannotBeDecidedIsNotSent(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	good := func() stock.Batch { return s.batch(1, "ann ann1 A:1") }
	for name, spoil := range map[string]func(*stock.Batch){
		"no grabs":               func(b *stock.Batch) { b.Asks = nil },
		"number 0":               func(b *stock.Batch) { b.Number = 0 },
		"acked ahead of itself":  func(b *stock.Batch) { b.Acked = b.Number },
		"a process with a space": func(b *stock.Batch) { b.Process = "p 1" },
		"no process":             func(b *stock.Batch) { b.Process = "" },
		"no user":                func(b *stock.Batch) { b.Asks[0].Grant.User = "" },
		"adjustment by a user":   func(b *stock.Batch) { b.Asks[0].Grant.Kind = sale.GrantAdjust },
		"no order id":            func(b *stock.Batch) { b.Asks[0].Grant.OrderID = "" },
		"no record":              func(b *stock.Batch) { b.Asks[0].Record = nil },
		"no lines":               func(b *stock.Batch) { b.Asks[0].Grant.Lines = nil },
		"quantity 0":             func(b *stock.Batch) { b.Asks[0].Grant.Lines[0].Quantity = 0 },
		"negative quantity":      func(b *stock.Batch) { b.Asks[0].Grant.Lines[0].Quantity = -1 },
		"enormous quantity":      func(b *stock.Batch) { b.Asks[0].Grant.Lines[0].Quantity = sale.MaxQuantity + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			before := writes(t, s.client)
			b := good()
			spoil(&b)
			if _, err := s.store.Grab(t.Context(), b); !errors.Is(err, stock.ErrBatch) {
				t.Errorf("got %v, want ErrBatch", err)
			}
			if n := writes(t, s.client) - before; n != 0 {
				t.Errorf("made %d changes", n)
			}
		})
	}
}

// A batch that Redis refuses in the middle must not have begun: every write stands
// behind everything that can fail.
func TestUnreadableOutboxStopsTheBatchBeforeItsFirstWrite(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(9))
	s.grab("W", 1, "ann ann1 A:1")
	if err := s.client.RPush(t.Context(), s.keys.Outbox(process), "rubbish").Err(); err != nil {
		t.Fatal(err)
	}
	before := writes(t, s.client)
	if _, err := s.store.Grab(t.Context(), s.batch(1, "bob bob1 A:1")); err == nil {
		t.Error("sold with an unreadable outbox")
	}
	if n := writes(t, s.client) - before; n != 0 {
		t.Errorf("the failed batch made %d changes", n)
	}
}
