package ledger_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// events reads what is told and not settled.
func events(t testing.TB, d desk) []ledger.Event {
	t.Helper()
	all, err := d.Events(t.Context(), 1000)
	must(t, err)
	return all
}

// kinds are those of the events of one order, in their order.
func kinds(all []ledger.Event, orderID string) string {
	var words []string
	for _, e := range all {
		if e.OrderID == orderID {
			words = append(words, string(e.Kind))
		}
	}
	return strings.Join(words, " ")
}

func TestWhatHappensToAnOrderIsToldInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		bought, dropped := grab("s", "ann", "1", "A", 2), grab("s", "bob", "1", "A", 1)
		record(t, d, batchOf(1, bought, dropped))
		_, err := d.Pay(t.Context(), bought.OrderID)
		must(t, err)
		_, _, err = d.Cancel(t.Context(), dropped.OrderID, "bob", "")
		must(t, err)
		must(t, d.Fulfil(t.Context(), ledger.Delivery{OrderID: bought.OrderID}))
		record(t, d, batchOf(1, bought, dropped)) // a replay

		all := events(t, d)
		equal(t, "of the bought order", kinds(all, bought.OrderID), "created paid fulfilled")
		equal(t, "of the dropped order", kinds(all, dropped.OrderID), "created cancelled")
		ids := make(map[string]bool)
		for _, e := range all {
			var body sale.Event
			must(t, json.Unmarshal(e.Body, &body))
			equal(t, "type", body.Type, "order."+string(e.Kind))
			equal(t, "id", body.ID, e.ID)
			equal(t, "order", body.Data.ID, e.OrderID)
			equal(t, "a full stop in the id", strings.Contains(e.ID, "."), false)
			ids[e.ID] = true
		}
		equal(t, "different ids", len(ids), len(all))
	})
}

func TestAnEventShowsTheOrderAsItIsAfterIt(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 2)
		record(t, d, batchOf(1, g))
		_, err := d.Pay(t.Context(), g.OrderID)
		must(t, err)
		_, _, err = d.Return(t.Context(), ledger.Return{OrderID: g.OrderID, ID: "r1", Lines: []sale.Line{{SKU: "A", Quantity: 1}}, Actor: "ops"})
		must(t, err)
		want := map[string]struct {
			status   sale.OrderStatus
			returned int64
		}{
			"created": {sale.OrderPendingPayment, 0}, "paid": {sale.OrderPaid, 0}, "returned": {sale.OrderPaid, 1},
		}
		for _, e := range events(t, d) {
			var body sale.Event
			must(t, json.Unmarshal(e.Body, &body))
			equal(t, string(e.Kind)+": status", body.Data.Status, want[string(e.Kind)].status)
			equal(t, string(e.Kind)+": returned", body.Data.Lines[0].Returned, want[string(e.Kind)].returned)
			equal(t, string(e.Kind)+": user", body.Data.User, "ann")
		}
	})
}

func TestAGrantBeyondTheStockIsToldAsRejected(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "B", 6) // of 5
		record(t, d, batchOf(1, g))
		all := events(t, d)
		equal(t, "kinds", kinds(all, g.OrderID), "rejected")
		var body sale.Event
		must(t, json.Unmarshal(all[0].Body, &body))
		equal(t, "reason", body.Data.Reason, sale.ReasonOversold)
		stored, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "reason of the order", stored.Reason, sale.ReasonOversold)
	})
}

func TestWithoutEventsNoRowIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	d := desk{Ledger: open(t, ledger.Config{SQLite: path, NoEvents: true})}
	createSale(t, d, "s")
	g := grab("s", "ann", "1", "A", 2)
	record(t, d, batchOf(1, g))
	_, _, err := d.Cancel(t.Context(), g.OrderID, "ann", "")
	must(t, err)
	equal(t, "events", len(events(t, d)), 0)
}

func TestASettledEventIsGoneAndMakesTheDeliveryItsSaleAsksFor(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		for id, trigger := range map[string]sale.FulfilmentTrigger{"none": "", "created": sale.FulfilCreated, "paid": sale.FulfilPaid} {
			s := draft(id)
			if trigger != "" {
				s.Fulfilment = fulfilment(trigger, sale.FailurePark)
			}
			_, err := d.CreateSale(t.Context(), s)
			must(t, err)
		}
		orders := map[string]sale.Grant{}
		for seq, id := range []string{"none", "created", "paid"} {
			orders[id] = grab(id, "ann", "1", "A", 1)
			record(t, d, batchOf(uint64(seq+1), orders[id]))
		}
		settle(t, d)
		equal(t, "deliveries after the creation", waiting(t, d), orders["created"].OrderID)
		for _, g := range orders {
			_, err := d.Pay(t.Context(), g.OrderID)
			must(t, err)
		}
		told := events(t, d)
		settle(t, d)
		equal(t, "deliveries after the payment", waiting(t, d), orders["created"].OrderID+" "+orders["paid"].OrderID)
		equal(t, "events left", len(events(t, d)), 0)

		rows := d.fingerprint(t)
		_, err := d.SettleEvents(t.Context(), told) // by one who did not know that it was done
		must(t, err)
		equal(t, "rows", d.fingerprint(t), rows)

		got, err := d.GetDelivery(t.Context(), orders["paid"].OrderID)
		must(t, err)
		var body sale.Event
		must(t, json.Unmarshal(got.Body, &body))
		equal(t, "what is sent", body.Type, "order.paid")
		equal(t, "host", got.Host, "shop.example:8443")
		equal(t, "patience", got.GiveUpAt.Sub(got.CreatedAt), time.Hour)
	})
}

func TestAnOrderFromBeforeTheTriggerChangedIsSentOnceItIsPaid(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		s := draft("s")
		s.Fulfilment = fulfilment(sale.FulfilPaid, sale.FailurePark)
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		before, after := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1)
		record(t, d, batchOf(1, before))
		settle(t, d)
		refulfil(t, d, func(f *sale.Fulfilment) { f.Trigger = sale.FulfilCreated })
		record(t, d, batchOf(2, after))
		for _, g := range []sale.Grant{before, after} {
			_, err := d.Pay(t.Context(), g.OrderID)
			must(t, err)
		}
		due, err := d.SettleEvents(t.Context(), events(t, d))
		must(t, err)
		equal(t, "due", due, 2)
		for id, want := range map[string]string{before.OrderID: "order.paid", after.OrderID: "order.created"} {
			equal(t, "what is sent", sent(t, d, id).Type, want)
		}
	})
}

func TestADeliveryThatThereIsIsNotCountedAsDueAgain(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilCreated, sale.FailurePark)
		must(t, d.Fulfil(t.Context(), claimOne(t, d, time.Hour)))
		rows := d.count(t, "SELECT COUNT(*) FROM deliveries WHERE status = 'delivered'")
		equal(t, "delivered", rows, 1)
		d.exec(t, "UPDATE orders SET status = 'pending_payment'")
		_, err := d.Pay(t.Context(), g.OrderID)
		must(t, err)
		due, err := d.SettleEvents(t.Context(), events(t, d))
		must(t, err)
		equal(t, "due", due, 0)
		equal(t, "waiting", waiting(t, d), "")
	})
}

// sent is the event that the delivery of an order holds.
func sent(t testing.TB, d desk, orderID string) sale.Event {
	t.Helper()
	got, err := d.GetDelivery(t.Context(), orderID)
	must(t, err)
	var body sale.Event
	must(t, json.Unmarshal(got.Body, &body))
	return body
}

// refulfil changes how the orders of the sale "s" are fulfilled.
func refulfil(t testing.TB, d desk, change func(*sale.Fulfilment)) {
	t.Helper()
	_, err := d.EditSale(t.Context(), "s", ledger.Cause{}, func(s *sale.Sale) error {
		rules := fulfilment(sale.FulfilPaid, sale.FailurePark)
		if s.Fulfilment != nil {
			*rules = *s.Fulfilment
		}
		change(rules)
		s.Fulfilment = rules
		return nil
	})
	must(t, err)
}

func TestADeliveryOfAnEndedOrderIsDropped(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilCreated, sale.FailurePark)
		_, _, err := d.Cancel(t.Context(), g.OrderID, "ann", "")
		must(t, err)
		equal(t, "deliveries", waiting(t, d), g.OrderID)
		settle(t, d)
		equal(t, "deliveries", waiting(t, d), "")
		got, err := d.GetDelivery(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", got.Status, ledger.DeliveryDropped)
	})
}

// fulfilment are rules for a receiver that nobody runs.
func fulfilment(trigger sale.FulfilmentTrigger, failure sale.FulfilmentFailure) *sale.Fulfilment {
	return &sale.Fulfilment{
		URL: "https://Shop.example:8443/hook?token=secret", Trigger: trigger, GiveUpAfter: sale.Duration(time.Hour), OnFailure: failure,
	}
}

// fulfilled makes a sale with such rules, and an order of it whose delivery is due.
func fulfilled(t testing.TB, d desk, trigger sale.FulfilmentTrigger, failure sale.FulfilmentFailure) sale.Grant {
	t.Helper()
	s := draft("s")
	s.Fulfilment = fulfilment(trigger, failure)
	_, err := d.CreateSale(t.Context(), s)
	must(t, err)
	g := grab("s", "ann", "1", "A", 2)
	record(t, d, batchOf(1, g))
	if trigger == sale.FulfilPaid {
		_, err := d.Pay(t.Context(), g.OrderID)
		must(t, err)
	}
	settle(t, d)
	return g
}

// settle does as if every event was on the stream.
func settle(t testing.TB, d desk) {
	t.Helper()
	_, err := d.SettleEvents(t.Context(), events(t, d))
	must(t, err)
}

// waiting lists the orders whose deliveries wait, by id.
func waiting(t testing.TB, d desk) string {
	t.Helper()
	var ids []string
	for _, saleID := range []string{"none", "created", "paid", "s"} {
		page, err := d.ListDeliveries(t.Context(), saleID, ledger.DeliveryWaiting, "", 100)
		must(t, err)
		for _, one := range page {
			ids = append(ids, one.OrderID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
