package ledger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// limitedSale is an approved sale of many A and B with these limits.
func limitedSale(t testing.TB, d desk, id string, limits ...sale.Limit) {
	t.Helper()
	s := draft(id)
	s.Status, s.PerUserLimit, s.Limits = sale.StatusApproved, 0, limits
	s.Items = []sale.Item{{SKU: "A", Stock: 100_000}, {SKU: "B", Stock: 100_000}}
	_, err := d.CreateSale(t.Context(), s)
	must(t, err)
}

func limit(scope sale.LimitScope, window sale.LimitWindow, most int64) sale.Limit {
	return sale.Limit{Scope: scope, Window: window, Max: most}
}

// used is what is counted in a sale, by "limit/period/subject".
func (d desk) used(t testing.TB, saleID string) map[string]int64 {
	t.Helper()
	used := make(map[string]int64)
	must(t, d.ReadSnapshot(t.Context(), saleID, stream, 1, func(s *ledger.Snapshot) error {
		return s.Counters(func(limit, period, subject string, n int64) error {
			used[limit+"/"+period+"/"+subject] = n
			return nil
		})
	}))
	return used
}

func counts(t testing.TB, got map[string]int64, want ...any) {
	t.Helper()
	expected := make(map[string]int64)
	for i := 0; i < len(want); i += 2 {
		expected[want[i].(string)] = int64(want[i+1].(int))
	}
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		t.Fatalf("counted %v, want %v", got, expected)
	}
}

// chain is the lines of a counter: kind, before, step, after.
func (d desk) chain(t testing.TB, saleID, counter string) []string {
	t.Helper()
	flows, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: saleID, Counter: counter, Limit: ledger.PageMax})
	must(t, err)
	lines := make([]string, len(flows))
	for i, f := range flows {
		lines[i] = fmt.Sprintf("%s %d%+d=%d", f.Kind, f.Before, f.Step, f.After)
	}
	return lines
}

func TestEveryUnitOfAGrabIsCountedInEachLimit(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeUser, sale.WindowDay, 9), limit(sale.ScopeIP, sale.WindowMonth, 9),
			limit(sale.ScopeSale, sale.WindowYear, 9), limit(sale.ScopeUser, sale.WindowSale, 9))
		two := grab("s", "ann", "1", "A", 2)
		two.Lines = append(two.Lines, sale.Line{SKU: "B", Quantity: 3})
		other := grab("s", "bob", "1", "A", 1)
		other.IP = "2001:db8:1:2:3:4:5:6"

		record(t, d, batchOf(1, two, other, grab("s", "ann", "2", "B", 1)))

		counts(t, d.used(t, "s"),
			"user_day/2030-01-02/ann", 6, "user_day/2030-01-02/bob", 1,
			"ip_month/2030-01/203.0.113.9", 6, "ip_month/2030-01/2001:db8:1:2::/64", 1,
			"sale_year/2030/", 7, "user_sale//ann", 6, "user_sale//bob", 1)
		want := []string{"grab 0+5=5", "grab 5+1=6", "grab 6+1=7"}
		if got := d.chain(t, "s", "sale_year/2030/"); !slices.Equal(got, want) {
			t.Fatalf("the year's log is %v, want %v", got, want)
		}
		sound(t, d, "s")

		rows := d.fingerprint(t)
		equal(t, "duplicates", record(t, d, batchOf(1, two, other)).Duplicates, 2)
		equal(t, "rows", d.fingerprint(t), rows)
	})
}

// Europe/Berlin put its clocks forward on 2030-03-31 at 01:00 UTC: that day has 23 hours.
func TestUnitsAreCountedInTheSalesOwnCalendar(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeSale, sale.WindowDay, 9), limit(sale.ScopeSale, sale.WindowMonth, 9))
		var grants []sale.Grant
		for i, at := range []string{
			"2030-03-30T22:59:59.999Z", "2030-03-30T23:00:00.000Z", "2030-03-31T21:59:59.999Z", "2030-03-31T22:00:00.000Z",
		} {
			g := grab("s", "ann", fmt.Sprint(i), "A", 1)
			var err error
			g.At, err = time.Parse(time.RFC3339Nano, at)
			must(t, err)
			g.ExpiresAt = g.At.Add(time.Minute)
			grants = append(grants, g)
		}
		record(t, d, batchOf(1, grants...))
		counts(t, d.used(t, "s"), "sale_day/2030-03-30/", 1, "sale_day/2030-03-31/", 2, "sale_day/2030-04-01/", 1,
			"sale_month/2030-03/", 3, "sale_month/2030-04/", 1)
		sound(t, d, "s")

		// What comes back comes off the day it was granted on, whenever that is.
		_, giveback, err := d.Cancel(t.Context(), grants[1].OrderID, "ops", "")
		must(t, err)
		want := []sale.CountStep{
			{Limit: "sale_day", Period: "2030-03-31", Units: 1}, {Limit: "sale_month", Period: "2030-03", Units: 1},
		}
		if !slices.Equal(giveback.Counts, want) {
			t.Fatalf("Redis takes off %v, want %v", giveback.Counts, want)
		}
		counts(t, d.used(t, "s"), "sale_day/2030-03-30/", 1, "sale_day/2030-03-31/", 1, "sale_day/2030-04-01/", 1,
			"sale_month/2030-03/", 2, "sale_month/2030-04/", 1)
		sound(t, d, "s")
	})
}

func TestRollingAGrabBackReversesExactlyWhatItTookAndOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeUser, sale.WindowDay, 9), limit(sale.ScopeIP, sale.WindowDay, 9), limit(sale.ScopeSale, sale.WindowSale, 9))
		g := grab("s", "ann", "1", "A", 2)
		g.Lines = append(g.Lines, sale.Line{SKU: "B", Quantity: 1})
		record(t, d, batchOf(1, grab("s", "ann", "0", "A", 1), g))

		first, giveback, err := d.Cancel(t.Context(), g.OrderID, "ops", "customer called")
		must(t, err)
		rows := d.fingerprint(t)
		for range 3 {
			again, same, err := d.Cancel(t.Context(), g.OrderID, "ops", "customer called twice")
			must(t, err)
			equal(t, "status", again.Status, first.Status)
			equal(t, "counts", fmt.Sprint(same.Counts), fmt.Sprint(giveback.Counts))
		}

		equal(t, "rows after the repetitions", d.fingerprint(t), rows)
		counts(t, d.used(t, "s"), "user_day/2030-01-02/ann", 1, "ip_day/2030-01-02/203.0.113.9", 1, "sale_sale//", 1)
		equal(t, "sold of A", item(t, d, "s", "A").Sold, 1)
		equal(t, "sold of B", item(t, d, "s", "B").Sold, 0)
		want := []string{"grab 0+1=1", "grab 1+3=4", "cancel 4-3=1"}
		for _, counter := range []string{"user_day/2030-01-02/ann", "ip_day/2030-01-02/203.0.113.9", "sale_sale//"} {
			if got := d.chain(t, "s", counter); !slices.Equal(got, want) {
				t.Errorf("the log of %s is %v, want %v", counter, got, want)
			}
		}
		equal(t, "who and why", d.count(t, "SELECT COUNT(*) FROM flows WHERE kind = 'cancel' AND actor = 'ops' AND reason = 'customer called' AND order_id = ?", g.OrderID), 5)
		sound(t, d, "s")
	})
}

func TestWhereBuyersMayNotGrabAgainTheirUnitsStayCounted(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeUser, sale.WindowSale, 9), limit(sale.ScopeSale, sale.WindowSale, 9))
		regrab := func(allowed bool) {
			_, err := d.EditSale(t.Context(), "s", ledger.Cause{Actor: "ops"}, func(s *sale.Sale) error { s.NoRegrab = !allowed; return nil })
			must(t, err)
		}
		record(t, d, batchOf(1, grab("s", "ann", "1", "A", 2), grab("s", "ann", "2", "A", 3)))

		regrab(false)
		_, kept, err := d.Cancel(t.Context(), grab("s", "ann", "1", "A", 2).OrderID, "ops", "")
		must(t, err)
		equal(t, "whose units come back", kept.User, "")
		equal(t, "comes off", fmt.Sprint(kept.Counts), "[{sale_sale   2}]")
		counts(t, d.used(t, "s"), "user_sale//ann", 5, "sale_sale//", 3)
		sound(t, d, "s")

		regrab(true)
		_, freed, err := d.Cancel(t.Context(), grab("s", "ann", "2", "A", 3).OrderID, "ops", "")
		must(t, err)
		equal(t, "whose units come back", freed.User, "ann")
		counts(t, d.used(t, "s"), "user_sale//ann", 2, "sale_sale//", 0)
		sound(t, d, "s")
	})
}

// Writers of the same counters through different items never lose a unit, and
// those of new counters never make one twice.
func TestManyWritersOfTheSameCountersLoseNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeSale, sale.WindowSale, 1_000_000), limit(sale.ScopeUser, sale.WindowDay, 1_000_000))
		const writers, grants = 6, 10
		batches := d.crowd(12)
		before := d.deadlocks(t)
		var done sync.WaitGroup
		for w := range writers {
			done.Go(func() {
				for b := range batches {
					m := ledger.Message{Seq: uint64(w*batches + b + 1), SaleID: "s", Batch: sale.Batch{BatchHead: sale.BatchHead{Generation: 3, Process: "p"}}}
					for g := range grants {
						m.Batch.Grants = append(m.Batch.Grants, grab("s", fmt.Sprint("user", (b+g)%17), fmt.Sprint(w, b, g), []string{"A", "B"}[w%2], 1))
					}
					if _, err := d.Record(t.Context(), messageBatch(m)); err != nil {
						t.Error(err)
					}
					if _, _, err := d.Cancel(t.Context(), m.Batch.Grants[b%grants].OrderID, "ops", ""); err != nil {
						t.Error(err)
					}
				}
			})
		}
		done.Wait()
		equal(t, "deadlocks", d.deadlocks(t)-before, 0)
		equal(t, "counted in the sale", d.used(t, "s")["sale_sale//"], int64(writers*batches*(grants-1)))
		sound(t, d, "s")
	})
}

func TestMoreCountersThanOneStatementHoldsAreCountedInOneTransaction(t *testing.T) { //nolint:tparallel // the two databases are side by side, the tests one by one
	onEachWith(t, ledger.Config{InsertRows: 20}, func(t *testing.T, d desk) {
		const users = 50
		for _, id := range []string{"s", "s-2"} {
			limitedSale(t, d, id, limit(sale.ScopeUser, sale.WindowDay, 9), limit(sale.ScopeSale, sale.WindowMonth, 9000), limit(sale.ScopeUser, sale.WindowSale, 9))
		}
		for round := range 2 {
			var grants []sale.Grant
			for i := range users {
				for _, id := range []string{"s", "s-2"} {
					grants = append(grants, grab(id, fmt.Sprint("user", i), fmt.Sprint(round), "A", int64(round+1)))
				}
			}
			record(t, d, batchOf(uint64(1+round*len(grants)), grants...))
		}
		for _, id := range []string{"s", "s-2"} {
			used := d.used(t, id)
			equal(t, "counters", len(used), 2*users+1)
			equal(t, "of all", used["sale_month/2030-01/"], 3*users)
			equal(t, "of the last", used[fmt.Sprintf("user_sale//user%d", users-1)], 3)
			sound(t, d, id)
		}
	})
}

func TestACancelledDeadLetterTakesItsUnitsOffInRedisOnly(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeUser, sale.WindowSale, 9), limit(sale.ScopeSale, sale.WindowDay, 9))
		g := grab("s", "ann", "1", "UNKNOWN", 2)
		bury(t, d, g)
		back, err := d.CancelDead(t.Context(), "s", g.OrderID, "ops", "")
		must(t, err)
		equal(t, "comes off", fmt.Sprint(back.Counts), "[{user_sale  ann 2} {sale_day 2030-01-02  2}]")
		counts(t, d.used(t, "s"))
		sound(t, d, "s")
	})
}
