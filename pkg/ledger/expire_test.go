package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestAnOrderThatIsNotPaidInTimeExpiresOnceAndGivesItsStockBack(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		g.Lines = append(g.Lines, sale.Line{SKU: "C", Quantity: 2})
		record(t, d, batchOf(1, g))

		early, err := d.ExpireDue(t.Context(), g.ExpiresAt.Add(-time.Millisecond), ledger.DueOrder{}, 10)
		must(t, err)
		equal(t, "due before the end of its payment window", early.Due, 0)
		found, err := d.ExpireDue(t.Context(), g.ExpiresAt, ledger.DueOrder{}, 10)
		must(t, err)
		equal(t, "due at its end", found.Due, 1)
		equal(t, "givebacks", len(found.Givebacks), 1)
		back := found.Givebacks[0]
		equal(t, "giveback", back.ID, sale.GivebackID(sale.FlowExpire, g.OrderID))
		equal(t, "giveback's user", back.User, "ann")
		if !slices.Equal(back.Lines, g.Lines) {
			t.Fatalf("gives %v back, want %v", back.Lines, g.Lines)
		}
		order, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", order.Status, sale.OrderExpired)
		equal(t, "reason", order.Reason, sale.ReasonPaymentTimeout)
		equal(t, "returned", order.Lines[1].Returned, 2)
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
		equal(t, "events", d.events(t, g.OrderID)[sale.EventExpired], 1)
		equal(t, "due again", expireAll(t, d).Due, 0)
		sound(t, d, "s")

		equal(t, "replayed after it expired", record(t, d, batchOf(1, g)).Duplicates, 1)
		sound(t, d, "s")
	})
}

func TestOnlyAnOrderThatWaitsForItsPaymentExpires(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		record(t, d, batchOf(1, g))
		for _, status := range []sale.OrderStatus{sale.OrderPaid, sale.OrderFulfilled, sale.OrderCancelled, sale.OrderRejected} {
			d.exec(t, "UPDATE orders SET status = ?", string(status))
			equal(t, "due while "+string(status), expireAll(t, d).Due, 0)
		}
		d.exec(t, "UPDATE orders SET status = 'pending_payment'")
		for _, status := range []sale.Status{sale.StatusPaused, sale.StatusEnded} {
			d.exec(t, "UPDATE sales SET status = ?", string(status))
		}
		equal(t, "expired after the sale has ended", len(expireAll(t, d).Givebacks), 1)
	})
}

func TestDueOrdersAreFoundInPages(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		var grants []sale.Grant
		for i := range 10 {
			g := grab("s", fmt.Sprint("user-", i), "1", "A", 1)
			g.ExpiresAt = start.Add(time.Duration(i/3) * time.Second) // some share the moment
			grants = append(grants, g)
		}
		record(t, d, batchOf(1, grants...))
		// One that can't expire must not keep the others waiting.
		d.exec(t, "UPDATE orders SET items = REPLACE(items, '\"A\"', '\"Z\"') WHERE id = ?", grants[0].OrderID)

		var after ledger.DueOrder
		expired, stuck := make(map[string]bool), 0
		for page := 0; ; page++ {
			found, err := d.ExpireDue(t.Context(), due, after, 4)
			must(t, err)
			if found.Due == 0 {
				equal(t, "pages", page, 3)
				break
			}
			for _, g := range found.Givebacks {
				expired[g.OrderID] = true
			}
			for _, s := range found.Stuck {
				equal(t, "the order that is stuck", s.OrderID, grants[0].OrderID)
				stuck++
			}
			after = found.Last
		}
		equal(t, "expired", len(expired), 9)
		equal(t, "stuck", stuck, 1)
		equal(t, "still sold", item(t, d, "s", "A").Sold, 1)
		d.exec(t, "UPDATE orders SET items = REPLACE(items, '\"Z\"', '\"A\"')")
		d.exec(t, "DELETE FROM sales")
		again := expireAll(t, d)
		equal(t, "due from the start", again.Due, 1)
		equal(t, "stuck without its sale", len(again.Stuck), 1)
	})
}

// SQLite has one writer, who holds everything.
func TestAnOrderThatSomebodyElseHoldsIsLeftToTheNextLook(t *testing.T) {
	d := onMariaDB(t, ledger.Config{})
	createSale(t, d, "s")
	held, free := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1)
	record(t, d, batchOf(1, held, free))
	tx, err := d.raw.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM orders WHERE id = ? FOR UPDATE", held.OrderID)
	must(t, err)
	found := expireAll(t, d)
	equal(t, "due", found.Due, 2)
	equal(t, "expired", len(found.Givebacks), 1)
	equal(t, "the free one", found.Givebacks[0].OrderID, free.OrderID)
	must(t, tx.Rollback())
	equal(t, "expired later", len(expireAll(t, d).Givebacks), 1)
	sound(t, d, "s")
}

func TestWhereBuyersMayNotGrabAgainWhatComesBackStaysCountedAgainstThem(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		s := draft("s")
		s.NoRegrab = true
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		cancelled, expired, returned := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1), grab("s", "eve", "1", "A", 1)
		record(t, d, batchOf(1, cancelled, expired, returned))
		_, err = d.Pay(t.Context(), returned.OrderID)
		must(t, err)
		_, ofCancel, err := d.Cancel(t.Context(), cancelled.OrderID, ledger.ActorUser, "")
		must(t, err)
		_, ofReturn, err := d.Return(t.Context(), ledger.Return{
			OrderID: returned.OrderID, ID: "r", Lines: []sale.Line{{SKU: "A", Quantity: 1}}, Actor: "ops",
		})
		must(t, err)
		for _, g := range append(expireAll(t, d).Givebacks, ofCancel, ofReturn) {
			equal(t, "user of "+g.ID, g.User, "")
			equal(t, "units of "+g.ID, g.Lines[0].Quantity, 1)
		}
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
	})
}
