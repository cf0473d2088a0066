package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Each guarantee is broken behind the ledger's back; the check of its name must see it.
func TestEveryBrokenGuaranteeIsFound(t *testing.T) {
	breaks := map[string]string{
		"sold_within_stock":     "UPDATE items SET stock = 1 WHERE sku = 'A' AND sale_id = 's'",
		"items_equal_flows":     "UPDATE items SET granted = granted + 1 WHERE sku = 'A'",
		"items_equal_orders":    "UPDATE orders SET status = 'expired' WHERE user_id = 'ann'",
		"flows_chain":           "UPDATE flows SET qty_before = qty_before - 1, qty_after = qty_after - 1 WHERE user_id = 'bob'",
		"flows_end_at_stock":    "UPDATE items SET stock = stock + 1 WHERE sku = 'A'",
		"orders_have_flows":     "DELETE FROM flows WHERE user_id = 'bob'",
		"flows_have_orders":     "DELETE FROM orders WHERE user_id = 'bob'",
		"returned_equals_flows": `UPDATE orders SET items = REPLACE(items, '"returned":0', '"returned":1') WHERE user_id = 'bob'`,
		"flows_have_givebacks":  "DELETE FROM givebacks",
		"givebacks_have_flows":  "UPDATE givebacks SET id = 'cancel:another'",
		"per_user_limit":        "UPDATE sales SET per_user_limit = 1",
		"orders_expire":         "UPDATE orders SET expires_at = NULL WHERE user_id = 'bob'",
		"counters_equal_flows":  "UPDATE counters SET used = used + 1",
		"counters_equal_orders": "UPDATE orders SET ip = '198.51.100.7' WHERE user_id = 'bob'",
		"limits":                `UPDATE sales SET rules = REPLACE(rules, '"max":4', '"max":3')`,
	}
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "empty")
		sound(t, d, "empty")
		checks, err := d.Verify(t.Context(), "empty")
		must(t, err)
		equal(t, "breaks of each check", len(breaks), len(checks))
		for name, statement := range breaks {
			for _, table := range []string{"sales", "items", "orders", "flows", "givebacks", "counters"} {
				d.exec(t, "DELETE FROM "+table)
			}
			s := draft("s")
			s.Limits = []sale.Limit{limit(sale.ScopeIP, sale.WindowDay, 4), limit(sale.ScopeUser, sale.WindowSale, 4)}
			_, err := d.CreateSale(t.Context(), s)
			must(t, err)
			gone := grab("s", "cid", "1", "A", 1)
			record(t, d, batchOf(1, grab("s", "ann", "1", "A", 2), grab("s", "bob", "1", "A", 1), gone, reduction("s", "r", "B", 1)))
			_, _, err = d.Cancel(t.Context(), gone.OrderID, "cid", "")
			must(t, err)
			sound(t, d, "s")

			d.breakRow(t, statement)

			checks, err := d.Verify(t.Context(), "s")
			must(t, err)
			found := false
			for _, c := range checks {
				if c.Name == name {
					found = !c.OK && strings.Contains(c.Detail, "violation")
				}
			}
			if !found {
				t.Errorf("after %s: %s did not see it: %+v", statement, name, checks)
			}
		}
		if _, err := d.Verify(t.Context(), "none"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown sale: got %v", err)
		}
	})
}

// breakRow changes rows with the database's own guards off.
func (d desk) breakRow(t *testing.T, statement string) {
	t.Helper()
	conn, err := d.raw.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	off, on := "SET check_constraint_checks = 0", "SET check_constraint_checks = 1"
	if d.sqlite {
		off, on = "PRAGMA ignore_check_constraints = 1", "PRAGMA ignore_check_constraints = 0"
	}
	for _, s := range []string{off, statement, on} {
		_, err := conn.ExecContext(t.Context(), s)
		must(t, err)
	}
}
