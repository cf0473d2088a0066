package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// createQuota makes a quota of 10 units a day in Berlin, and returns its sale's id.
func createQuota(t testing.TB, d desk, key string) string {
	t.Helper()
	q := sale.Quota{Key: key, Limit: 10, Window: sale.WindowDay, Timezone: "Europe/Berlin"}
	s, err := d.CreateSale(t.Context(), q.Sale())
	must(t, err)
	return s.ID
}

// deduction is a grant of some units of a quota.
func deduction(saleID, key string, quantity int64, at time.Time) sale.Grant {
	return sale.Grant{
		Kind: sale.GrantGrab, OrderID: sale.OrderID(saleID, sale.QuotaUser, key), User: sale.QuotaUser, Key: key, At: at,
		Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: quantity}},
	}
}

func TestADeductionIsFulfilledAtOnceAndNobodyIsTold(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		id := createQuota(t, d, "api")
		g := deduction(id, "1", 4, start)
		record(t, d, batchOf(1, g))
		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", o.Status, sale.OrderFulfilled)
		used, err := d.Used(t.Context(), id, "sale_day", "2030-01-02", "")
		must(t, err)
		equal(t, "used", used, 4)

		// What comes back frees the counter of its own day, and counts for no user.
		_, back, err := d.Return(t.Context(), ledger.Return{
			OrderID: g.OrderID, ID: "r1", Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: 3}}, Actor: "backend",
		})
		must(t, err)
		equal(t, "user of the giveback", back.User, "")
		want := []sale.CountStep{{Limit: "sale_day", Period: "2030-01-02", Units: 3}}
		if !slices.Equal(back.Counts, want) {
			t.Errorf("the giveback takes %v off the counters, want %v", back.Counts, want)
		}
		used, err = d.Used(t.Context(), id, "sale_day", "2030-01-02", "")
		must(t, err)
		equal(t, "used after the return", used, 1)
		equal(t, "events", d.count(t, "SELECT COUNT(*) FROM events"), 0)
		sound(t, d, id)
	})
}

func TestQuotasAreListedApart(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		for _, id := range []string{"quotA", "quota", "quota-a", "r"} {
			createSale(t, d, id)
		}
		for _, key := range []string{"b", "a", "_"} {
			createQuota(t, d, key)
		}
		names := func(page []sale.Sale, err error) string {
			must(t, err)
			var ids []string
			for _, s := range page {
				ids = append(ids, s.ID)
			}
			return fmt.Sprint(ids)
		}
		equal(t, "sales", names(d.ListSales(t.Context(), "", 9)), "[quotA quota quota-a r]")
		equal(t, "sales behind quota-a", names(d.ListSales(t.Context(), "quota-a", 9)), "[r]")
		equal(t, "quotas", names(d.ListQuotas(t.Context(), "", 9)), "[quota__ quota_a quota_b]")
		equal(t, "quotas behind a", names(d.ListQuotas(t.Context(), "quota_a", 9)), "[quota_b]")
	})
}

func TestASnapshotCanLeaveOutWhatIsOld(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		id := createQuota(t, d, "api")
		old, young := deduction(id, "old", 1, start.Add(-time.Millisecond)), deduction(id, "young", 1, start)
		record(t, d, batchOf(1, old, young))
		_, back, err := d.Return(t.Context(), ledger.Return{
			OrderID: old.OrderID, ID: "r1", Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: 1}},
		})
		must(t, err)
		must(t, d.ReadSnapshot(t.Context(), id, stream, 1, func(s *ledger.Snapshot) error {
			var orders, before, after []string
			add := func(to *[]string) func(string, int64) error {
				return func(id string, _ int64) error { *to = append(*to, id); return nil }
			}
			err := errors.Join(
				s.OrdersSince(start, func(o *sale.Order) error { orders = append(orders, o.ID); return nil }),
				s.GivebacksSince(time.Now().Add(-time.Hour), add(&before)), s.GivebacksSince(time.Now().Add(time.Hour), add(&after)),
			)
			equal(t, "orders", fmt.Sprint(orders), fmt.Sprint([]string{young.OrderID}))
			equal(t, "givebacks of the last hour", fmt.Sprint(before), fmt.Sprint([]string{back.ID}))
			equal(t, "givebacks of the next hour", len(after), 0)
			return err
		}))
	})
}
