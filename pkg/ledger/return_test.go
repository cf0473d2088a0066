package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// cart records an order of 3 of A and 2 of C, and pays it.
func cart(t testing.TB, d desk) sale.Grant {
	t.Helper()
	s := draft("s")
	s.PerUserLimit = 0
	_, err := d.CreateSale(t.Context(), s)
	must(t, err)
	g := grab("s", "ann", "1", "A", 3)
	g.Lines = append(g.Lines, sale.Line{SKU: "C", Quantity: 2, PriceCents: 7})
	record(t, d, batchOf(1, g))
	_, err = d.Pay(t.Context(), g.OrderID)
	must(t, err)
	return g
}

func units(sku string, n int64) sale.Line { return sale.Line{SKU: sku, Quantity: n} }

func returning(g sale.Grant, id string, lines ...sale.Line) ledger.Return {
	return ledger.Return{OrderID: g.OrderID, ID: id, Lines: lines, Actor: "ops", Reason: "does not fit"}
}

func TestAPaidOrderMayComeBackInPartsUntilNothingIsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := cart(t, d)
		order, back, err := d.Return(t.Context(), returning(g, "r1", units("A", 1)))
		must(t, err)
		equal(t, "status", order.Status, sale.OrderPaid)
		equal(t, "returned", order.Lines[0].Returned, 1)
		equal(t, "units that come back", back.Lines[0].Quantity, 1)
		equal(t, "at the price of the order", back.Lines[0].PriceCents, 100)
		equal(t, "user", back.User, "ann")

		d.exec(t, "UPDATE orders SET status = 'fulfilled'")
		order, _, err = d.Return(t.Context(), returning(g, "r2", units("C", 2), units("A", 2)))
		must(t, err)
		equal(t, "status when all of it came back", order.Status, sale.OrderFulfilled)
		equal(t, "returned", order.Lines[0].Returned, 3)
		equal(t, "returned", order.Lines[1].Returned, 2)
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
		equal(t, "events", d.events(t, g.OrderID)[sale.EventReturned], 2)

		_, _, err = d.Return(t.Context(), returning(g, "r3", units("A", 1)))
		var exceeds *ledger.ReturnError
		if !errors.As(err, &exceeds) || exceeds.SKU != "A" || exceeds.Left != 0 {
			t.Fatalf("returning from an order that came back whole: got %v", err)
		}
		sound(t, d, "s")
	})
}

func TestAReturnIsNamedByItsIDInItsOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := cart(t, d)
		other := grab("s", "bob", "1", "A", 1)
		record(t, d, batchOf(2, other))
		_, err := d.Pay(t.Context(), other.OrderID)
		must(t, err)

		first := returning(g, "r1", units("A", 1), units("C", 1))
		_, back, err := d.Return(t.Context(), first)
		must(t, err)
		_, _, err = d.Return(t.Context(), returning(g, "r2", units("A", 1)))
		must(t, err)
		again, sameBack, err := d.Return(t.Context(), returning(g, "r1", units("C", 1), units("A", 1)))
		must(t, err)
		equal(t, "giveback the second time", sameBack.ID, back.ID)
		equal(t, "returned by both returns", again.Lines[0].Returned, 2)
		for _, lines := range [][]sale.Line{{units("A", 1)}, {units("A", 1), units("C", 2)}, {units("A", 2), units("C", 1)}} {
			if _, _, err := d.Return(t.Context(), returning(g, "r1", lines...)); !errors.Is(err, ledger.ErrReturnReused) {
				t.Errorf("the same id for %v: got %v", lines, err)
			}
		}
		_, _, err = d.Return(t.Context(), returning(other, "r1", units("A", 1)))
		must(t, err) // another order may use the same id
		equal(t, "sold", item(t, d, "s", "A").Sold, 1)
		sound(t, d, "s")
	})
}

func TestNoMoreComesBackThanWasTaken(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := cart(t, d)
		_, _, err := d.Return(t.Context(), returning(g, "r1", units("C", 1), units("A", 4)))
		var exceeds *ledger.ReturnError
		if !errors.As(err, &exceeds) || exceeds.SKU != "A" || exceeds.Left != 3 {
			t.Fatalf("got %v", err)
		}
		_, _, err = d.Return(t.Context(), returning(g, "r1", units("B", 1)))
		if !errors.As(err, &exceeds) || exceeds.SKU != "B" || exceeds.Left != 0 {
			t.Fatalf("an item that is not in the order: got %v", err)
		}
		equal(t, "sold", item(t, d, "s", "A").Sold, 3)
		equal(t, "the id is still free", d.count(t, "SELECT COUNT(*) FROM givebacks"), 0)
		sound(t, d, "s")
	})
}

func TestOnlyAPaidOrderCanComeBack(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := cart(t, d)
		for _, status := range []sale.OrderStatus{sale.OrderPendingPayment, sale.OrderCancelled, sale.OrderExpired, sale.OrderRejected} {
			d.exec(t, "UPDATE orders SET status = ?", string(status))
			_, _, err := d.Return(t.Context(), returning(g, "r1", units("A", 1)))
			requireRefused(t, err, status)
		}
		if _, _, err := d.Return(t.Context(), ledger.Return{OrderID: "s.x", ID: "r", Lines: []sale.Line{units("A", 1)}}); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown order: got %v", err)
		}
	})
}

func TestAReturnThatMakesNoSenseIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := cart(t, d)
		for field, r := range map[string]ledger.Return{
			"return_id":         returning(g, "", units("A", 1)),
			"items":             returning(g, "r"),
			"items[0].quantity": returning(g, "r", units("A", 0)),
			"items[1].sku":      returning(g, "r", units("A", 1), units("A", 1)),
		} {
			_, _, err := d.Return(t.Context(), r)
			var wrong *sale.FieldError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s: got %v", field, err)
			}
		}
		for _, id := range []string{"with space", "ünder", strings.Repeat("x", ledger.MaxReturnIDLen+1)} {
			_, _, err := d.Return(t.Context(), returning(g, id, units("A", 1)))
			var wrong *sale.FieldError
			if !errors.As(err, &wrong) || wrong.Field != "return_id" {
				t.Errorf("id %q: got %v", id, err)
			}
		}
		_, _, err := d.Return(t.Context(), returning(g, strings.Repeat("~", ledger.MaxReturnIDLen), units("A", 1)))
		must(t, err)
	})
}

func TestNothingIsLeftToCancelOfAnOrderThatCameBackWhole(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := cart(t, d)
		_, _, err := d.Return(t.Context(), returning(g, "r1", units("A", 3)))
		must(t, err)
		_, _, err = d.Return(t.Context(), returning(g, "r2", units("C", 2)))
		must(t, err)
		_, _, err = d.Cancel(t.Context(), g.OrderID, "ops", "")
		requireRefused(t, err, sale.OrderPaid)
		equal(t, "givebacks", d.count(t, "SELECT COUNT(*) FROM givebacks"), 2)
		sound(t, d, "s")
	})
}
