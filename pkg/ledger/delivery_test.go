package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

const shopHost = "shop.example:8443"

// claim takes due deliveries of the shop for a lease.
func claim(t testing.TB, d desk, limit int, lease time.Duration) ledger.Claims {
	t.Helper()
	claims, err := d.ClaimDeliveries(t.Context(), shopHost, limit, lease)
	must(t, err)
	return claims
}

// claimOne takes the only delivery that is due.
func claimOne(t testing.TB, d desk, lease time.Duration) ledger.Delivery {
	t.Helper()
	claims := claim(t, d, 10, lease)
	if len(claims.Deliveries) != 1 {
		t.Fatalf("claimed %d deliveries, want 1", len(claims.Deliveries))
	}
	return claims.Deliveries[0]
}

func TestAClaimedDeliveryIsNobodyElsesUntilTheLeaseIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		fulfilled(t, d, sale.FulfilPaid, sale.FailurePark)
		first := claimOne(t, d, time.Hour)
		equal(t, "attempts", first.Attempts, 1)
		equal(t, "claimed meanwhile", len(claim(t, d, 10, time.Hour).Deliveries), 0)
		hosts, _, err := d.DueHosts(t.Context(), "", 10)
		must(t, err)
		equal(t, "receivers with due deliveries", len(hosts), 0)

		d.exec(t, "UPDATE deliveries SET next_at = ?", first.NextAt.Add(-2*time.Hour))
		hosts, _, err = d.DueHosts(t.Context(), "", 10)
		must(t, err)
		equal(t, "receivers with due deliveries after the lease", fmt.Sprint(hosts), "["+shopHost+"]")
		equal(t, "attempts after the lease", claimOne(t, d, time.Hour).Attempts, 2)
	})
}

func TestClaimersSideBySideTakeEachDeliveryOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		s := draft("s")
		s.Fulfilment = fulfilment(sale.FulfilCreated, sale.FailurePark)
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		var grants []sale.Grant
		for i := range 200 {
			grants = append(grants, grab("s", fmt.Sprint("user-", i), "1", "C", 1))
		}
		record(t, d, batchOf(1, grants...))
		settle(t, d)

		var mu sync.Mutex
		taken := make(map[string]int)
		var claimers sync.WaitGroup
		for range 4 {
			claimers.Go(func() {
				for range 1000 {
					claims, err := d.ClaimDeliveries(t.Context(), shopHost, 7, time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, one := range claims.Deliveries {
						taken[one.OrderID]++
					}
					done := len(taken) == len(grants)
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
		claimers.Wait()
		equal(t, "claimed orders", len(taken), len(grants))
		for id, n := range taken {
			equal(t, "claims of "+id, n, 1)
		}
	})
}

func TestAnEndedOrderIsDroppedInsteadOfClaimed(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilCreated, sale.FailurePark)
		_, _, err := d.Cancel(t.Context(), g.OrderID, "ann", "")
		must(t, err)
		claims := claim(t, d, 10, time.Hour)
		equal(t, "claimed", len(claims.Deliveries), 0)
		equal(t, "dropped", claims.Dropped, 1)
		got, err := d.GetDelivery(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", got.Status, ledger.DeliveryDropped)
	})
}

func TestAnOrderThatCannotBeReadIsParkedAndKeepsNobodyWaiting(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		s := draft("s")
		s.Fulfilment = fulfilment(sale.FulfilCreated, sale.FailureRollback)
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		spoilt, ended, fine := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1), grab("s", "eve", "1", "A", 1)
		record(t, d, batchOf(1, spoilt, ended, fine))
		settle(t, d)
		_, _, err = d.Cancel(t.Context(), ended.OrderID, "bob", "")
		must(t, err)
		d.exec(t, "UPDATE orders SET items = '{}' WHERE id = ?", spoilt.OrderID)

		claims := claim(t, d, 10, time.Hour)
		equal(t, "claimed", len(claims.Deliveries), 1)
		equal(t, "the readable one", claims.Deliveries[0].OrderID, fine.OrderID)
		equal(t, "dropped", claims.Dropped, 1)
		equal(t, "parked", len(claims.Parked), 1)
		equal(t, "the parked one", claims.Parked[0].OrderID, spoilt.OrderID)
		got, err := d.GetDelivery(t.Context(), spoilt.OrderID)
		must(t, err)
		equal(t, "status", got.Status, ledger.DeliveryParked)
		equal(t, "attempts", got.Attempts, 0)
		if !strings.Contains(got.LastError, "items of order "+spoilt.OrderID) || claims.Parked[0].LastError != got.LastError {
			t.Errorf("parked because of %q", got.LastError)
		}
	})
}

func TestATakenDeliveryFulfilsItsOrderOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilPaid, sale.FailureRollback)
		one := claimOne(t, d, time.Hour)
		must(t, d.Fulfil(t.Context(), one))
		rows := d.fingerprint(t)
		must(t, d.Fulfil(t.Context(), one))
		equal(t, "rows", d.fingerprint(t), rows)

		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", o.Status, sale.OrderFulfilled)
		got, err := d.GetDelivery(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "delivery", got.Status, ledger.DeliveryDelivered)
		equal(t, "events", kinds(events(t, d), g.OrderID), "fulfilled")
	})
}

func TestGivingUpRollsTheOrderBackOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilPaid, sale.FailureRollback)
		one := claimOne(t, d, time.Hour)
		equal(t, "sold before", item(t, d, "s", "A").Sold, 2)

		status, giveback, err := d.GiveUp(t.Context(), one, "status 500")
		must(t, err)
		equal(t, "delivery", status, ledger.DeliveryFailed)
		equal(t, "giveback", giveback.ID, "reject:"+g.OrderID)
		status, giveback, err = d.GiveUp(t.Context(), one, "status 500")
		must(t, err)
		if status != "" || giveback != nil {
			t.Errorf("given up twice: %s, %v", status, giveback)
		}

		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", o.Status, sale.OrderRejected)
		equal(t, "reason", o.Reason, sale.ReasonFulfilmentFailed)
		equal(t, "sold after", item(t, d, "s", "A").Sold, 0)
		equal(t, "events", kinds(events(t, d), g.OrderID), "rejected")
		flows, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: "s", SKU: "A", Limit: 10})
		must(t, err)
		last := flows[len(flows)-1]
		equal(t, "flow", fmt.Sprint(last.Kind, last.Step, last.Actor, last.Reason), "reject2fulfilmentstatus 500")
		sound(t, d, "s")
		_, err = d.Resend(t.Context(), g.OrderID)
		if state, ok := errors.AsType[*ledger.OrderStatusError](err); !ok || state.Status != sale.OrderRejected {
			t.Errorf("resend after the rollback: %v", err)
		}
	})
}

func TestAnOutcomeOfAClaimThatIsOverChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		fulfilled(t, d, sale.FulfilPaid, sale.FailureRollback)
		late := claimOne(t, d, time.Hour)
		d.exec(t, "UPDATE deliveries SET next_at = ?", late.NextAt.Add(-2*time.Hour))
		claimOne(t, d, time.Hour)

		d.requireOver(t, late)
	})
}

// requireOver holds that who has this claim can neither postpone the delivery nor give it up.
func (d desk) requireOver(t testing.TB, claimed ledger.Delivery) {
	t.Helper()
	rows := d.fingerprint(t)
	must(t, d.Postpone(t.Context(), claimed, time.Now(), "too late"))
	status, giveback, err := d.GiveUp(t.Context(), claimed, "too late")
	must(t, err)
	if status != "" || giveback != nil {
		t.Errorf("gave up %s, %v", status, giveback)
	}
	equal(t, "rows", d.fingerprint(t), rows)
}

func TestAClaimFromBeforeADeliveryWasSentAgainEndsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilPaid, sale.FailureRollback)
		hangs := claimOne(t, d, time.Hour)
		_, err := d.Resend(t.Context(), g.OrderID)
		must(t, err)
		holds := claimOne(t, d, 2*time.Hour)
		equal(t, "attempts of the new claim", holds.Attempts, hangs.Attempts)

		d.requireOver(t, hangs)
		must(t, d.Postpone(t.Context(), holds, time.Now().Add(time.Hour), "status 500"))
		got, err := d.GetDelivery(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "what the new claim came to", got.LastError, "status 500")
	})
}

func TestAParkedDeliveryIsSentAgainToWhereTheRulesSayNow(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilPaid, sale.FailurePark)
		status, giveback, err := d.GiveUp(t.Context(), claimOne(t, d, time.Hour), "status 410")
		must(t, err)
		equal(t, "delivery", status, ledger.DeliveryParked)
		equal(t, "nothing comes back", giveback == nil, true)
		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "order", o.Status, sale.OrderPaid)

		_, err = d.EditSale(t.Context(), "s", ledger.Cause{}, func(s *sale.Sale) error {
			moved := *s.Fulfilment
			moved.URL = "http://elsewhere.example/hook"
			s.Fulfilment = &moved
			return nil
		})
		must(t, err)
		sent, err := d.Resend(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", sent.Status, ledger.DeliveryWaiting)
		equal(t, "receiver", sent.Host, "elsewhere.example")
		equal(t, "attempts", sent.Attempts, 0)
		claims, err := d.ClaimDeliveries(t.Context(), "elsewhere.example", 1, time.Hour)
		must(t, err)
		equal(t, "claimed", len(claims.Deliveries), 1)
		equal(t, "what failed before", claims.Deliveries[0].LastError, "status 410")
	})
}

func TestAFulfilledOrderIsNotRolledBackWhenItsDeliveryIsSentAgain(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		g := fulfilled(t, d, sale.FulfilPaid, sale.FailureRollback)
		must(t, d.Fulfil(t.Context(), claimOne(t, d, time.Hour)))
		_, err := d.Resend(t.Context(), g.OrderID)
		must(t, err)
		status, giveback, err := d.GiveUp(t.Context(), claimOne(t, d, time.Hour), "status 500")
		must(t, err)
		equal(t, "delivery", status, ledger.DeliveryFailed)
		equal(t, "nothing comes back", giveback == nil, true)
		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "order", o.Status, sale.OrderFulfilled)
	})
}

func TestWhatCannotBeSentAgainIsSaid(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 1)
		record(t, d, batchOf(1, g))
		for _, id := range []string{g.OrderID, "s.unknown"} {
			if _, err := d.Resend(t.Context(), id); !errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

func TestAnOrderThatWasNeverQueuedIsSentWhenAnOperatorSaysSo(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		paid, unpaid, ended := grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1), grab("s", "eve", "1", "A", 1)
		record(t, d, batchOf(1, paid, unpaid, ended))
		_, err := d.Pay(t.Context(), paid.OrderID)
		must(t, err)
		_, _, err = d.Cancel(t.Context(), ended.OrderID, "eve", "")
		must(t, err)
		told := make(map[string]string) // the id of each order's last event
		for _, e := range events(t, d) {
			told[e.OrderID] = e.ID
		}
		settle(t, d)
		refulfil(t, d, func(*sale.Fulfilment) {})

		resent, err := d.Resend(t.Context(), paid.OrderID)
		must(t, err)
		equal(t, "status", resent.Status, ledger.DeliveryWaiting)
		body := sent(t, d, paid.OrderID)
		equal(t, "what is sent", body.Type, "order.paid")
		equal(t, "as in the stream", body.ID, told[paid.OrderID])
		equal(t, "order", body.Data.Status, sale.OrderPaid)
		equal(t, "claimed", claimOne(t, d, time.Hour).OrderID, paid.OrderID)

		if _, err := d.Resend(t.Context(), unpaid.OrderID); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("before it is paid: %v", err) // it is queued when it is
		}
		refulfil(t, d, func(f *sale.Fulfilment) { f.Trigger = sale.FulfilCreated })
		_, err = d.Resend(t.Context(), unpaid.OrderID)
		must(t, err)
		equal(t, "what is sent of the unpaid one", sent(t, d, unpaid.OrderID).ID, told[unpaid.OrderID])
		if _, err := d.Resend(t.Context(), ended.OrderID); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
	})
}

func TestDueReceiversComeInTheOrderInWhichTheyWait(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		insert := func(n int, host, status string, due time.Duration) {
			at := time.Now().UTC().Add(due).Truncate(time.Millisecond)
			d.exec(t, "INSERT INTO deliveries (order_id, sale_id, url, host, body, status, attempts, last_error, created_at, next_at, give_up_at, updated_at)"+
				" VALUES (?, 's', '', ?, '', ?, 0, '', ?, ?, ?, ?)", fmt.Sprint("s.", n), host, status, at, at, at, at)
		}
		insert(1, "late", "waiting", -time.Minute)
		insert(2, "later", "waiting", -time.Second)
		insert(3, "later", "delivered", -time.Hour)
		insert(4, "latest", "waiting", -time.Hour)
		insert(5, "early", "waiting", time.Hour)
		hosts, next, err := d.DueHosts(t.Context(), "", 10)
		must(t, err)
		equal(t, "receivers", fmt.Sprintf("%v %s", hosts, next), "[latest late later] ")
		hosts, next, err = d.DueHosts(t.Context(), "", 3)
		must(t, err)
		equal(t, "the first three", fmt.Sprintf("%v %s", hosts, next), "[late later] later")
		hosts, next, err = d.DueHosts(t.Context(), next, 3)
		must(t, err)
		equal(t, "the rest", fmt.Sprintf("%v %s", hosts, next), "[latest] ")
	})
}
