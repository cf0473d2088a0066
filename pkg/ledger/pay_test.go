package ledger_test

import (
	"errors"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// events counts the events of an order, by kind.
func (d desk) events(t testing.TB, orderID string) map[sale.EventKind]int64 {
	t.Helper()
	counts := make(map[sale.EventKind]int64)
	for _, kind := range sale.EventKinds {
		if n := d.count(t, "SELECT COUNT(*) FROM events WHERE order_id = ? AND kind = ?", orderID, string(kind)); n > 0 {
			counts[kind] = n
		}
	}
	return counts
}

// requireRefused holds that an error names the order's status.
func requireRefused(t testing.TB, err error, status sale.OrderStatus) {
	t.Helper()
	var refused *ledger.OrderStatusError
	if !errors.As(err, &refused) || refused.Status != status {
		t.Fatalf("got %v, want the order to be %s", err, status)
	}
}

// due is after the payment window of every order that grab makes.
var due = start.AddDate(1, 0, 0)

func expireAll(t testing.TB, d desk) ledger.Expired {
	t.Helper()
	found, err := d.ExpireDue(t.Context(), due, ledger.DueOrder{}, ledger.PageMax)
	must(t, err)
	return found
}

func TestPayingTwiceIsPayingOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		record(t, d, batchOf(1, g))
		for range 2 {
			order, err := d.Pay(t.Context(), g.OrderID)
			must(t, err)
			equal(t, "status", order.Status, sale.OrderPaid)
			equal(t, "reason", order.Reason, "")
		}
		equal(t, "events of the payment", d.events(t, g.OrderID)[sale.EventPaid], 1)
		equal(t, "sold", item(t, d, "s", "A").Sold, 3)

		d.exec(t, "UPDATE orders SET status = 'fulfilled'")
		order, err := d.Pay(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status of a fulfilled order that is paid again", order.Status, sale.OrderFulfilled)
		sound(t, d, "s")

		if _, err := d.Pay(t.Context(), "s.nothing"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown order: got %v", err)
		}
	})
}

func TestAPaymentIsTakenUntilTheOrderHasExpiredWhateverTheClockSays(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		early, late := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1)
		record(t, d, batchOf(1, early, late))
		d.exec(t, "UPDATE orders SET expires_at = '2001-01-01 00:00:00'")

		order, err := d.Pay(t.Context(), early.OrderID)
		must(t, err)
		equal(t, "status", order.Status, sale.OrderPaid)
		equal(t, "expired", len(expireAll(t, d).Givebacks), 1)
		_, err = d.Pay(t.Context(), late.OrderID)
		requireRefused(t, err, sale.OrderExpired)
	})
}

func TestTheShopIsToldOnceOfAPaymentThatCameTooLate(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		expired, cancelled := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1)
		record(t, d, batchOf(1, expired, cancelled))
		_, _, err := d.Cancel(t.Context(), cancelled.OrderID, ledger.ActorUser, "")
		must(t, err)
		equal(t, "expired", len(expireAll(t, d).Givebacks), 1)

		for orderID, status := range map[string]sale.OrderStatus{expired.OrderID: sale.OrderExpired, cancelled.OrderID: sale.OrderCancelled} {
			before, err := d.GetOrder(t.Context(), orderID)
			must(t, err)
			equal(t, "late payment before it was made", before.LatePaymentAt.IsZero(), true)
			for range 3 {
				_, err := d.Pay(t.Context(), orderID)
				requireRefused(t, err, status)
			}
			equal(t, "events of late payments", d.events(t, orderID)[sale.EventLatePayment], 1)
			after, err := d.GetOrder(t.Context(), orderID)
			must(t, err)
			equal(t, "status", after.Status, status)
			equal(t, "the order says so", after.LatePaymentAt.IsZero(), false)
			equal(t, "what came back", after.Lines[0].Returned, 1)
		}
		sound(t, d, "s")
	})
}
