package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

var operator = ledger.Cause{Actor: "ops", Reason: "demand"}

func edit(t testing.TB, d desk, id string, change func(*sale.Sale)) {
	t.Helper()
	_, err := d.EditSale(t.Context(), id, operator, func(s *sale.Sale) error { change(s); return nil })
	must(t, err)
}

// history is the changes of a sale as "field: old -> new (reason, actor)".
func (d desk) history(t testing.TB, id string) string {
	t.Helper()
	var lines []string
	after := int64(0)
	for {
		page, err := d.ListChanges(t.Context(), id, after, 2)
		must(t, err)
		if len(page) == 0 {
			return strings.Join(lines, "\n")
		}
		for _, c := range page {
			if c.SaleID != id || c.Seq <= after || time.Since(c.At) > time.Hour {
				t.Fatalf("%+v after %d", c, after)
			}
			after = c.Seq
			lines = append(lines, fmt.Sprintf("%s: %s -> %s (%s, %s)", c.Field, c.Old, c.New, c.Reason, c.Actor))
		}
	}
}

func TestEveryChangeOfASaleIsKeptWithWhoAndWhy(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		s := draft("s")
		s.Limits = []sale.Limit{limit(sale.ScopeUser, sale.WindowDay, 2)}
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		_, err = d.EditDraft(t.Context(), "s", func(s *sale.Sale) error { s.PerUserLimit = 3; return nil })
		must(t, err)
		equal(t, "history of a draft", d.history(t, "s"), "")

		edit(t, d, "s", func(s *sale.Sale) { s.Status, s.PerUserLimit = sale.StatusApproved, 2 })
		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit, s.Limits[0].Max, s.RateLimit, s.NoRegrab = 5, 9, 100, true })
		edit(t, d, "s", func(s *sale.Sale) {
			s.EndsAt, s.PaymentWindow = s.EndsAt.Add(time.Hour), sale.Duration(time.Minute)
			s.Fulfilment = &sale.Fulfilment{URL: "https://shop.example/orders", Trigger: sale.FulfilPaid, GiveUpAfter: sale.Duration(time.Hour), OnFailure: sale.FailurePark}
		})
		edit(t, d, "s", func(*sale.Sale) {})
		_, err = d.AdjustUp(t.Context(), ledger.Adjustment{SaleID: "s", SKU: "A", Delta: 5, Ref: "up", Actor: "ops", Reason: "found"})
		must(t, err)
		record(t, d, batchOf(1, reduction("s", "r", "A", 2)))

		want := `status: draft -> approved (demand, ops)
per_user_limit: 2 -> 5 (demand, ops)
limits.user_day.max: 2 -> 9 (demand, ops)
rate_limit: 0 -> 100 (demand, ops)
regrab_after_cancel: true -> false (demand, ops)
ends_at: 2030-01-02T13:00:00Z -> 2030-01-02T14:00:00Z (demand, ops)
payment_window: 20m0s -> 1m0s (demand, ops)
fulfilment: null -> {"url":"https://shop.example/orders","trigger":"paid","give_up_after":"1h0m0s","on_failure":"park"} (demand, ops)
items.A.stock: 10 -> 15 (found, ops)
items.A.stock: 15 -> 13 (broken units, ops)`
		if got := d.history(t, "s"); got != want {
			t.Errorf("the history is\n%s\nwant\n%s", got, want)
		}
		equal(t, "history of another sale", d.history(t, "s2"), "")
	})
}

func TestNothingIsTakenBackWhenALimitIsLowered(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeUser, sale.WindowSale, 3), limit(sale.ScopeSale, sale.WindowDay, 5))
		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit = 3 })
		record(t, d, batchOf(1, grab("s", "ann", "1", "A", 3), grab("s", "bob", "1", "A", 2)))
		sound(t, d, "s")

		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit, s.Limits[0].Max, s.Limits[1].Max = 1, 1, 0 })

		counts(t, d.used(t, "s"), "user_sale//ann", 3, "user_sale//bob", 2, "sale_day/2030-01-02/", 5)
		sound(t, d, "s")
		perUser, byLimit, err := d.HighestLimits(t.Context(), "s")
		must(t, err)
		equal(t, "highest per user", perUser, 0) // it had none when it was made
		equal(t, "highest of the limits", fmt.Sprint(byLimit), "map[sale_day:5 user_sale:3]")
	})
}

func TestTheHighestLimitsAreThoseOfTheWholeHistory(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		s := draft("s")
		s.Status, s.Limits = sale.StatusApproved, []sale.Limit{limit(sale.ScopeUser, sale.WindowSale, 3)}
		_, err := d.CreateSale(t.Context(), s)
		must(t, err)
		highest := func(perUser int64, most string) {
			t.Helper()
			p, m, err := d.HighestLimits(t.Context(), "s")
			must(t, err)
			equal(t, "highest per user", p, perUser)
			equal(t, "highest of the limits", fmt.Sprint(m), most)
		}
		highest(4, "map[user_sale:3]")
		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit, s.Limits[0].Max = 9, 7 })
		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit, s.Limits[0].Max = 2, 1 })
		highest(9, "map[user_sale:7]")
		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit = 0 })
		edit(t, d, "s", func(s *sale.Sale) { s.PerUserLimit = 1 })
		highest(0, "map[user_sale:7]")
		if _, _, err := d.HighestLimits(t.Context(), "none"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown sale: got %v", err)
		}
	})
}

func TestMoreThanWasEverAllowedIsFound(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		limitedSale(t, d, "s", limit(sale.ScopeUser, sale.WindowSale, 3))
		edit(t, d, "s", func(s *sale.Sale) { s.Limits[0].Max = 4 })
		edit(t, d, "s", func(s *sale.Sale) { s.Limits[0].Max = 2 })
		record(t, d, batchOf(1, grab("s", "ann", "1", "A", 4)))
		sound(t, d, "s")
		// No limit of the ledger's own: Redis is what refuses.
		record(t, d, batchOf(2, grab("s", "ann", "2", "A", 1)))
		checks, err := d.Verify(t.Context(), "s")
		must(t, err)
		for _, c := range checks {
			if c.OK == (c.Name == "limits") {
				t.Errorf("%+v", c)
			}
		}
	})
}
