package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func bury(t *testing.T, d desk, g sale.Grant) {
	t.Helper()
	must(t, d.BuryDead(t.Context(), ledger.DeadLetter{
		SaleID: "s", OrderID: g.OrderID, StreamID: stream, Seq: 5, Generation: 2, Reason: "unlucky", Attempts: 3,
		Record: sale.AppendGrant(nil, &g),
	}))
}

func TestADeadLetterIsKeptAsItWas(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := grab("s", "ann", "1", "A", 2)
		bury(t, d, g)
		letters, err := d.ListDead(t.Context(), "s", "", 10)
		must(t, err)
		equal(t, "letters", len(letters), 1)
		l := letters[0]
		equal(t, "status", l.Status, ledger.DeadOpen)
		equal(t, "seq", l.Seq, 5)
		equal(t, "generation", l.Generation, 2)
		equal(t, "attempts", l.Attempts, 3)
		equal(t, "reason", l.Reason, "unlucky")
		got, err := l.Grant()
		must(t, err)
		equal(t, "record", string(sale.AppendGrant(nil, &got)), string(sale.AppendGrant(nil, &g)))
		next, err := d.ListDead(t.Context(), "s", l.OrderID, 10)
		must(t, err)
		equal(t, "next page", len(next), 0)
	})
}

func TestAReplayedDeadLetterIsAnOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 2)
		bury(t, d, g)
		equal(t, "dropped while it is open", record(t, d, batchOf(1, g)).Duplicates, 1)

		r, err := d.ReplayDead(t.Context(), "s", g.OrderID)
		must(t, err)

		equal(t, "orders", r.Orders, 1)
		rows := d.fingerprint(t)
		_, err = d.ReplayDead(t.Context(), "s", g.OrderID)
		must(t, err)
		equal(t, "rows after another replay", d.fingerprint(t), rows)
		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "generation", o.Generation, 2)
		equal(t, "sold", item(t, d, "s", "A").Sold, 2)
		_, err = d.CancelDead(t.Context(), "s", g.OrderID, "ops", "")
		requireDeadStatus(t, err, ledger.DeadReplayed)
		sound(t, d, "s")
	})
}

func TestACancelledDeadLetterGivesItsStockBack(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 2)
		bury(t, d, g)

		giveback, err := d.CancelDead(t.Context(), "s", g.OrderID, "ops", "could not be written")
		must(t, err)

		equal(t, "giveback", giveback.ID, sale.GivebackID(sale.FlowCancel, g.OrderID))
		equal(t, "units", giveback.Lines[0], g.Lines[0])
		rows := d.fingerprint(t)
		again, err := d.CancelDead(t.Context(), "s", g.OrderID, "ops", "could not be written")
		must(t, err)
		equal(t, "giveback again", again.ID, giveback.ID)
		equal(t, "rows after cancelling again", d.fingerprint(t), rows)
		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "its owner sees it", o.Status, sale.OrderCancelled)
		flows, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: "s", SKU: "A", Limit: 10})
		must(t, err)
		equal(t, "flows: taken and given back", len(flows), 2)
		_, err = d.ReplayDead(t.Context(), "s", g.OrderID)
		requireDeadStatus(t, err, ledger.DeadCancelled)
		sound(t, d, "s")
	})
}

func requireDeadStatus(t *testing.T, err error, want ledger.DeadStatus) {
	t.Helper()
	var refused *ledger.DeadStatusError
	if !errors.As(err, &refused) || refused.Status != want {
		t.Fatalf("got %v, want that it is %s", err, want)
	}
}

func TestWhatCannotBeRecordedCanBeCancelledAllTheSame(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		all := poisons()
		delete(all, "negative units")   // Its record cannot be read.
		delete(all, "expires too late") // Its record holds a time that can be recorded.
		for name, p := range all {
			letter := ledger.DeadLetter{SaleID: "s", OrderID: p.grant.OrderID, Record: sale.AppendGrant(nil, &p.grant)}
			must(t, d.BuryDead(t.Context(), letter))
			letters, err := d.ListDead(t.Context(), "s", "", 1)
			must(t, err)
			if _, err := d.ReplayDead(t.Context(), "s", letters[0].OrderID); err == nil {
				t.Errorf("%s: replayed", name)
			}

			giveback, err := d.CancelDead(t.Context(), "s", letters[0].OrderID, "ops", "")

			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if giveback == nil {
				t.Errorf("%s: nothing comes back", name)
			}
			if name == "unknown SKU" {
				o, err := d.GetOrder(t.Context(), p.grant.OrderID)
				must(t, err)
				equal(t, "its owner sees it", o.Status, sale.OrderRejected)
			}
			sound(t, d, "s")
			equal(t, name+": flows", d.count(t, "SELECT COUNT(*) FROM flows"), 0)
			for _, table := range []string{"dead_letters", "givebacks", "orders"} {
				d.exec(t, "DELETE FROM "+table) // Several of these share an order id.
			}
		}
	})
}

func TestACancelledDeadReductionComesBackToRedisOnly(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := reduction("s", "r", "A", 3)
		bury(t, d, g)
		giveback, err := d.CancelDead(t.Context(), "s", g.OrderID, "ops", "")
		must(t, err)
		equal(t, "units", giveback.Lines[0].Quantity, 3)
		equal(t, "stock", item(t, d, "s", "A").Stock, 10)
		equal(t, "dropped when its message comes again", record(t, d, batchOf(1, g)).Duplicates, 1)
		equal(t, "stock after that", item(t, d, "s", "A").Stock, 10)
		sound(t, d, "s")
	})
}

func TestAMessageThatCannotBeReadCanBeDismissed(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		letter := ledger.DeadLetter{SaleID: "s", OrderID: "message-9", Seq: 9, Record: []byte("DB1 what?")}
		must(t, d.BuryDead(t.Context(), letter))
		if _, err := d.ReplayDead(t.Context(), "s", "message-9"); !errors.Is(err, sale.ErrCorrupt) {
			t.Errorf("replay: got %v", err)
		}
		giveback, err := d.CancelDead(t.Context(), "s", "message-9", "ops", "")
		must(t, err)
		if giveback != nil {
			t.Errorf("gives %v back", giveback)
		}
		if _, err := d.CancelDead(t.Context(), "s", "message-8", "ops", ""); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown one: got %v", err)
		}
	})
}

func TestWhatIsRecordedIsNotBuried(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		order, less := grab("s", "ann", "1", "A", 1), reduction("s", "less", "B", 2)
		record(t, d, batchOf(1, order, less))
		bury(t, d, order)
		bury(t, d, less)
		equal(t, "letters", d.count(t, "SELECT COUNT(*) FROM dead_letters"), 0)
	})
}

func TestBuryingAndRecordingAtOnceIsOneOrTheOther(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		for i := range 40 {
			g := grab("s", fmt.Sprint("user", i), "1", "C", 1)
			var both sync.WaitGroup
			both.Go(func() {
				err := d.BuryDead(t.Context(), ledger.DeadLetter{SaleID: "s", OrderID: g.OrderID, Record: sale.AppendGrant(nil, &g)})
				if err != nil {
					t.Error(err)
				}
			})
			both.Go(func() {
				if _, err := d.Record(t.Context(), batchOf(uint64(i+1), g)); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			orders := d.count(t, "SELECT COUNT(*) FROM orders WHERE id = ?", g.OrderID)
			letters := d.count(t, "SELECT COUNT(*) FROM dead_letters WHERE order_id = ?", g.OrderID)
			equal(t, "orders and letters of one grant", orders+letters, 1)
		}
		sound(t, d, "s")
	})
}

func TestBuryingWaitsForWhoHoldsTheItems(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t, ledger.Config{LockWait: time.Second, Attempts: 1})
	createSale(t, d, "s")
	d.holdItems(t, "s")
	g := grab("s", "ann", "1", "A", 1)
	err := d.BuryDead(t.Context(), ledger.DeadLetter{SaleID: "s", OrderID: g.OrderID, Record: sale.AppendGrant(nil, &g)})
	if err == nil {
		t.Fatal("a grant was buried while another held its items")
	}
	if !d.Transient(err) || d.Permanent(err) {
		t.Errorf("%v is not called transient, or permanent", err)
	}
	equal(t, "letters", d.count(t, "SELECT COUNT(*) FROM dead_letters"), 0)
}

func TestACancelledLetterOfARecordedReductionGivesNothingBack(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		less := reduction("s", "less", "A", 2)
		bury(t, d, less)
		d.exec(t, "UPDATE dead_letters SET order_id = 'hidden'")
		record(t, d, batchOf(1, less))
		d.exec(t, "UPDATE dead_letters SET order_id = ?", less.OrderID)

		giveback, err := d.CancelDead(t.Context(), "s", less.OrderID, "ops", "")
		must(t, err)
		if giveback != nil {
			t.Errorf("%+v comes back of a reduction that stays", giveback)
		}
		equal(t, "stock", item(t, d, "s", "A").Stock, 8)
		settled := snapshot(t, d, "s", 1).settled
		if want := []string{fmt.Sprint(less.OrderID, less.Lines)}; !slices.Equal(settled, want) {
			t.Errorf("settled are %v, want %v", settled, want)
		}
		sound(t, d, "s")
	})
}
