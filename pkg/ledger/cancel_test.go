package ledger_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestACancelledOrderGivesItsStockBackOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		g.Lines = append(g.Lines, sale.Line{SKU: "C", Quantity: 1})
		record(t, d, batchOf(1, g))

		order, giveback, err := d.Cancel(t.Context(), g.OrderID, "ann", "no longer wanted")
		must(t, err)

		equal(t, "status", order.Status, sale.OrderCancelled)
		equal(t, "returned", order.Lines[0].Returned, 3)
		equal(t, "giveback", giveback.ID, sale.GivebackID(sale.FlowCancel, g.OrderID))
		equal(t, "giveback's user", giveback.User, "ann")
		if !slices.Equal(giveback.Lines, g.Lines) {
			t.Fatalf("gives %v back, want %v", giveback.Lines, g.Lines)
		}
		rows := d.fingerprint(t)
		again, sameGiveback, err := d.Cancel(t.Context(), g.OrderID, "ann", "impatient")
		must(t, err)
		equal(t, "status the second time", again.Status, sale.OrderCancelled)
		equal(t, "giveback the second time", sameGiveback.ID, giveback.ID)
		if !slices.Equal(sameGiveback.Lines, g.Lines) {
			t.Fatalf("gives %v back, want %v", sameGiveback.Lines, g.Lines)
		}
		equal(t, "rows", d.fingerprint(t), rows)
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
		equal(t, "returned", item(t, d, "s", "A").Returned, 3)
		stored, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "stored status", stored.Status, sale.OrderCancelled)
		sound(t, d, "s")

		equal(t, "replayed after it was cancelled", record(t, d, batchOf(1, g)).Duplicates, 1)
		sound(t, d, "s")
	})
}

func TestItsOwnerCanOnlyCancelAnOrderThatWaitsForItsPayment(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		record(t, d, batchOf(1, g))
		for _, status := range []sale.OrderStatus{sale.OrderPaid, sale.OrderFulfilled, sale.OrderExpired, sale.OrderRejected} {
			d.exec(t, "UPDATE orders SET status = ?", string(status))
			_, _, err := d.Cancel(t.Context(), g.OrderID, ledger.ActorUser, "")
			var refused *ledger.OrderStatusError
			if !errors.As(err, &refused) || refused.Status != status {
				t.Errorf("cancelling an order that is %s: got %v", status, err)
			}
		}
		equal(t, "sold", item(t, d, "s", "A").Sold, 3)
		if _, _, err := d.Cancel(t.Context(), "s.nothing", "ann", ""); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown order: got %v", err)
		}
	})
}

func TestAnOperatorRollsAPaidOrderBack(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		record(t, d, batchOf(1, g))
		_, err := d.Pay(t.Context(), g.OrderID)
		must(t, err)
		_, _, err = d.Return(t.Context(), ledger.Return{OrderID: g.OrderID, ID: "r", Lines: []sale.Line{{SKU: "A", Quantity: 1}}, Actor: "op"})
		must(t, err)
		for range 2 {
			order, back, err := d.Cancel(t.Context(), g.OrderID, "op", "")
			must(t, err)
			if order.Status != sale.OrderCancelled || len(back.Lines) != 1 || back.Lines[0].Quantity != 2 {
				t.Errorf("the order is %s and gives %v back, want the 2 units that are left", order.Status, back.Lines)
			}
		}
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
		sound(t, d, "s")
	})
}

func TestAnotherActorIsToldThatTheOrderIsCancelledAlready(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		record(t, d, batchOf(1, g))
		_, _, err := d.Cancel(t.Context(), g.OrderID, "ann", "")
		must(t, err)
		_, _, err = d.Cancel(t.Context(), g.OrderID, "ops", "")
		var refused *ledger.OrderStatusError
		if !errors.As(err, &refused) || refused.Status != sale.OrderCancelled {
			t.Fatalf("got %v", err)
		}
	})
}

func TestGivebacksWaitUntilTheyAreApplied(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		var want []sale.Giveback
		for _, id := range []string{"s1", "s2"} {
			createSale(t, d, id)
			for _, user := range []string{"a", "b", "c"} {
				g := grab(id, user, "1", "A", 2)
				record(t, d, batchOf(1, g))
				_, giveback, err := d.Cancel(t.Context(), g.OrderID, user, "")
				must(t, err)
				want = append(want, giveback)
			}
		}

		unapplied := func() (all []sale.Giveback) {
			for {
				var after *sale.Giveback
				if len(all) > 0 {
					after = &all[len(all)-1]
				}
				page, err := d.UnappliedGivebacks(t.Context(), after, 2)
				must(t, err)
				if len(page) == 0 {
					return all
				}
				all = append(all, page...)
			}
		}
		equal(t, "unapplied", len(unapplied()), len(want))
		must(t, d.MarkApplied(t.Context(), "s1", []string{want[0].ID, want[1].ID, want[2].ID, "cancel:unknown"}))
		must(t, d.MarkApplied(t.Context(), "s2", []string{want[0].ID}))
		left := unapplied()
		equal(t, "left", len(left), 3)
		for _, g := range left {
			equal(t, "sale of what is left", g.SaleID, "s2")
			equal(t, "units of what is left", g.Lines[0].Quantity, 2)
		}
		all := 0
		must(t, d.AllGivebackIDs(t.Context(), "s1", time.Time{}, func(_ string, units int64) error {
			all++
			equal(t, "units", units, 2)
			return nil
		}))
		equal(t, "all of s1", all, 3)
	})
}
