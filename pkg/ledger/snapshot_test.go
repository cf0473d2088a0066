package ledger_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// seen is all that a snapshot shows.
type seen struct {
	sale          sale.Sale
	floor         uint64
	orders        map[string]sale.Order
	givebacks     map[string]int64
	dead, settled []string
	items         []ledger.ItemTotals
	generation    int64
}

func look(s *ledger.Snapshot) (seen, error) {
	v := seen{
		sale: s.Sale(), floor: s.Floor(), items: s.Items(), generation: s.Generation(),
		orders: map[string]sale.Order{}, givebacks: map[string]int64{},
	}
	err := errors.Join(
		s.Orders(func(o *sale.Order) error {
			v.orders[o.ID] = *o
			return nil
		}),
		s.GivebacksSince(time.Time{}, func(id string, units int64) error { v.givebacks[id] = units; return nil }),
		s.DeadLetters(func(d *ledger.DeadLetter) error { v.dead = append(v.dead, d.OrderID); return nil }),
		s.Settled(func(g *sale.Grant) error { v.settled = append(v.settled, fmt.Sprint(g.OrderID, g.Lines)); return nil }),
	)
	return v, err
}

func snapshot(t *testing.T, d desk, saleID string, firstSeq uint64) seen {
	t.Helper()
	var v seen
	must(t, d.ReadSnapshot(t.Context(), saleID, stream, firstSeq, func(s *ledger.Snapshot) error {
		var err error
		v, err = look(s)
		return err
	}))
	return v
}

func TestASnapshotShowsTheWholeSaleAndNothingElse(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		for _, id := range []string{"s", "s-2", "r"} {
			createSale(t, d, id)
			record(t, d, batchOf(1, grab(id, "ann", "1", "A", 1), grab(id, "bob", "1", "B", 2), reduction(id, "less", "A", 2)))
		}
		cancelled := grab("s", "bob", "1", "B", 2).OrderID
		_, giveback, err := d.Cancel(t.Context(), cancelled, "bob", "")
		must(t, err)
		up, err := d.AdjustUp(t.Context(), ledger.Adjustment{SaleID: "s", SKU: "B", Delta: 4, Ref: "up"})
		must(t, err)
		stays, goes, comesTrue := grab("s", "d1", "1", "A", 1), reduction("s", "d2", "A", 1), grab("s", "d3", "1", "A", 1)
		lost := grab("s", "d4", "1", "A", 1)
		for _, g := range []sale.Grant{stays, goes, comesTrue, lost} {
			bury(t, d, g)
		}
		_, err = d.CancelDead(t.Context(), "s", goes.OrderID, "ops", "")
		must(t, err)
		_, err = d.CancelDead(t.Context(), "s", lost.OrderID, "ops", "")
		must(t, err)
		_, err = d.ReplayDead(t.Context(), "s", comesTrue.OrderID)
		must(t, err)
		must(t, d.SetGeneration(t.Context(), "s", 9))

		v := snapshot(t, d, "s", 2)

		equal(t, "floor", v.floor, 3)
		equal(t, "generation", v.generation, 9)
		equal(t, "stock of A", v.sale.Items[1].Stock, 8)
		equal(t, "sold of A", v.items[1].Sold, 2)
		want := []string{grab("s", "ann", "1", "A", 1).OrderID, cancelled, comesTrue.OrderID, lost.OrderID}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(v.orders)); !slices.Equal(got, want) {
			t.Errorf("orders %v, want %v", got, want)
		}
		direct, err := d.GetOrder(t.Context(), cancelled)
		must(t, err)
		equal(t, "an order", fmt.Sprintf("%+v", v.orders[cancelled]), fmt.Sprintf("%+v", direct))
		wantBack := map[string]int64{giveback.ID: 2, up.Giveback.ID: 4, "cancel:" + goes.OrderID: 1, "cancel:" + lost.OrderID: 1}
		if !maps.Equal(v.givebacks, wantBack) {
			t.Errorf("givebacks %v, want %v", v.givebacks, wantBack)
		}
		if !slices.Equal(v.dead, []string{stays.OrderID}) {
			t.Errorf("dead letters %v, want %v", v.dead, stays.OrderID)
		}
		settled := []string{fmt.Sprint(reduction("s", "less", "A", 2).OrderID, []sale.Line{{SKU: "A", Quantity: 2}}), fmt.Sprint(goes.OrderID, goes.Lines)}
		if !slices.Equal(v.settled, settled) {
			t.Errorf("settled %v, want %v", v.settled, settled)
		}
		equal(t, "floor when the first message is not written", snapshot(t, d, "s", 4).floor, 3)
		err = d.ReadSnapshot(t.Context(), "nowhere", stream, 1, func(*ledger.Snapshot) error { return nil })
		if !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown sale: got %v", err)
		}
	})
}

func TestASnapshotIsOfOneMoment(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		first := grab("s", "ann", "1", "A", 1)
		record(t, d, batchOf(1, first))
		must(t, d.ReadSnapshot(t.Context(), "s", stream, 1, func(s *ledger.Snapshot) error {
			record(t, d, batchOf(2, grab("s", "bob", "1", "A", 1)))
			_, _, err := d.Cancel(t.Context(), first.OrderID, "ann", "")
			must(t, err)
			bury(t, d, grab("s", "cid", "1", "A", 1))
			v, err := look(s)
			equal(t, "floor", v.floor, 1)
			equal(t, "orders", len(v.orders), 1)
			equal(t, "status", v.orders[first.OrderID].Status, sale.OrderPendingPayment)
			equal(t, "givebacks", len(v.givebacks), 0)
			equal(t, "dead letters", len(v.dead), 0)
			return err
		}))
		equal(t, "orders later", len(snapshot(t, d, "s", 1).orders), 2)
	})
}
