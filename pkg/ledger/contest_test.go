package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// together does something n times, workers at a time.
func together(n, workers int, do func(i int)) {
	next := make(chan int)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	running.Wait()
}

func TestPayAndExpireFiredTogetherHaveOneWinnerPerOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		orders := d.crowd(1000)
		s := draft("s")
		s.Items = []sale.Item{{SKU: "A", Stock: int64(orders)}}
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		grants := make([]sale.Grant, orders)
		for i := range grants {
			grants[i] = grab("s", fmt.Sprint("user-", i), "k", "A", 1)
		}
		record(t, d, batchOf(1, grants...))
		random := rand.New(rand.NewPCG(harness.Seed(t), 0))
		turns := random.Perm(orders)

		paid := make([]bool, orders)
		expired := make(map[string]bool)
		var running sync.WaitGroup
		// However slow one side is, neither is through before the other has begun.
		somePaid, someExpired := make(chan struct{}), make(chan struct{})
		onePaid, oneExpired := sync.OnceFunc(func() { close(somePaid) }), sync.OnceFunc(func() { close(someExpired) })
		running.Go(func() {
			together(orders, 6, func(i int) {
				if i == orders/2 {
					<-someExpired
				}
				_, err := d.Pay(t.Context(), grants[turns[i]].OrderID)
				onePaid()
				var refused *ledger.OrderStatusError
				if err != nil && (!errors.As(err, &refused) || refused.Status != sale.OrderExpired) {
					t.Errorf("pay: %v", err)
				}
				paid[turns[i]] = err == nil
			})
		})
		var mu sync.Mutex
		for range 2 {
			running.Go(func() {
				<-somePaid
				for {
					found, err := d.ExpireDue(t.Context(), due, ledger.DueOrder{}, 20)
					if err != nil || len(found.Givebacks) > 0 {
						oneExpired()
					}
					if err != nil {
						t.Errorf("expire: %v", err)
						return
					}
					if found.Due == 0 {
						return
					}
					mu.Lock()
					for _, g := range found.Givebacks {
						if expired[g.OrderID] {
							t.Errorf("order %s expired twice", g.OrderID)
						}
						expired[g.OrderID] = true
					}
					mu.Unlock()
				}
			})
		}
		running.Wait()

		for i := range grants {
			order, err := d.GetOrder(t.Context(), grants[i].OrderID)
			must(t, err)
			id := grants[i].OrderID
			if paid[i] == expired[id] || (order.Status == sale.OrderPaid) != paid[i] || (order.Status == sale.OrderExpired) != expired[id] {
				t.Errorf("order %s is %s; paid %v, expired %v", id, order.Status, paid[i], expired[id])
			}
		}
		n := int64(len(expired))
		if n == 0 || n == int64(orders) {
			t.Errorf("%d of %d expired: there was no contest", n, orders)
		}
		equal(t, "sold", item(t, d, "s", "A").Sold, int64(orders)-n)
		equal(t, "givebacks", d.count(t, "SELECT COUNT(*) FROM givebacks"), n)
		equal(t, "late payments told", d.count(t, "SELECT COUNT(*) FROM events WHERE kind = 'late_payment'"), n)
		equal(t, "payments told", d.count(t, "SELECT COUNT(*) FROM events WHERE kind = 'paid'"), int64(orders)-n)
		sound(t, d, "s")
	})
}

func TestAnOrderThatManyEndAtOnceGivesItsUnitsBackOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 3)
		record(t, d, batchOf(1, g))
		together(d.crowd(1000), 16, func(i int) {
			var err error
			switch i % 4 {
			case 0:
				_, _, err = d.Cancel(t.Context(), g.OrderID, ledger.ActorUser, "")
			case 1:
				_, _, err = d.Cancel(t.Context(), g.OrderID, "ops", "")
			case 2:
				_, _, err = d.Return(t.Context(), returning(g, fmt.Sprint("r", i), units("A", 1)))
			default:
				_, err = d.ExpireDue(t.Context(), due, ledger.DueOrder{}, 10)
			}
			var refused *ledger.OrderStatusError
			if err != nil && !errors.As(err, &refused) {
				t.Errorf("attempt %d: %v", i, err)
			}
		})
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
		equal(t, "givebacks", d.count(t, "SELECT COUNT(*) FROM givebacks"), 1)
		equal(t, "units given back", d.count(t, "SELECT SUM(units) FROM givebacks"), 3)
		equal(t, "flows", d.count(t, "SELECT COUNT(*) FROM flows WHERE kind <> 'grab'"), 1)
		sound(t, d, "s")
	})
}

func TestManyReturnsAtOnceBringBackNoMoreThanWasTaken(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "1", "A", 4)
		record(t, d, batchOf(1, g))
		_, err := d.Pay(t.Context(), g.OrderID)
		must(t, err)
		together(d.crowd(1000), 16, func(i int) {
			_, _, err := d.Return(t.Context(), returning(g, fmt.Sprint("r", i%10), units("A", 1)))
			var exceeds *ledger.ReturnError
			if err != nil && !errors.As(err, &exceeds) {
				t.Errorf("attempt %d: %v", i, err)
			}
		})
		equal(t, "sold", item(t, d, "s", "A").Sold, 0)
		equal(t, "givebacks", d.count(t, "SELECT COUNT(*) FROM givebacks"), 4)
		equal(t, "events", d.events(t, g.OrderID)[sale.EventReturned], 4)
		sound(t, d, "s")
	})
}
