package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestOrdersAreListedInPages(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		for _, id := range []string{"s", "s-2", "s2"} {
			createSale(t, d, id)
			var grants []sale.Grant
			for i := range 7 {
				grants = append(grants, grab(id, fmt.Sprint("user", i%3), fmt.Sprint(i), "C", 1))
			}
			record(t, d, batchOf(1, grants...))
		}
		first := grab("s", "user0", "0", "C", 1).OrderID
		_, _, err := d.Cancel(t.Context(), first, "user0", "")
		must(t, err)

		all := func(q ledger.OrderQuery) (ids []string) {
			q.SaleID, q.Limit = "s", 2
			for {
				page, err := d.ListOrders(t.Context(), q)
				must(t, err)
				if len(page) == 0 {
					return ids
				}
				for _, o := range page {
					equal(t, "sale", o.SaleID, "s")
					if o.ID <= q.After {
						t.Fatalf("%s after %s", o.ID, q.After)
					}
					q.After = o.ID
					ids = append(ids, o.ID)
				}
			}
		}
		equal(t, "orders", len(all(ledger.OrderQuery{})), 7)
		equal(t, "live orders", len(all(ledger.OrderQuery{Status: sale.OrderPendingPayment})), 6)
		equal(t, "orders of a user", len(all(ledger.OrderQuery{User: "user0"})), 3)
		equal(t, "cancelled orders of a user", len(all(ledger.OrderQuery{User: "user0", Status: sale.OrderCancelled})), 1)
		if _, err := d.GetOrder(t.Context(), "s.none"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown order: got %v", err)
		}
	})
}

func TestFlowsAreListedInPages(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		createSale(t, d, "s2")
		for i := range 4 {
			record(t, d, batchOf(1, grab("s", "u", fmt.Sprint(i), "C", 1), grab("s2", "u", fmt.Sprint(i), "C", 1), grab("s", "u", fmt.Sprint("B", i), "B", 1)))
		}
		after, n := int64(0), 0
		for {
			page, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: "s", After: after, Limit: 3})
			must(t, err)
			if len(page) == 0 {
				break
			}
			for _, f := range page {
				if f.SaleID != "s" || f.Seq <= after {
					t.Fatalf("%+v after %d", f, after)
				}
				after = f.Seq
				n++
			}
		}
		equal(t, "flows", n, 8)
	})
}
