package ledger

import (
	"context"
	"fmt"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// Check is one guarantee, looked at.
type Check struct {
	Name   string // stable, snake_case
	OK     bool
	Detail string // what was counted, or the first violations
}

// checkExamples bounds how many violations a Detail tells.
const checkExamples = 5

// violations counts what breaks one guarantee, and keeps the first few.
type violations struct {
	count    int
	examples []string
}

func (v *violations) add(text string) {
	v.count++
	if len(v.examples) < checkExamples {
		v.examples = append(v.examples, text)
	}
}

func (v *violations) check(name string) Check {
	c := Check{Name: name, OK: v.count == 0}
	if !c.OK {
		c.Detail = fmt.Sprintf("%d violations: %s", v.count, strings.Join(v.examples, "; "))
	}
	return c
}

// check names a guarantee and the query that finds what breaks it: one row per
// violation, its one column says which. @sale is the sale's id, @per_user the most
// units a user was ever allowed, 0 for no limit.
type check struct {
	name, query string
}

// heldKinds are the kinds of flow that change what orders hold; by backKinds it
// comes back. tookNothing finds the lines of orders that were refused when they came
// to be recorded; those that were rejected later had taken what then came back.
const (
	heldKinds   = "('grab', 'cancel', 'expire', 'return', 'reject')"
	backKinds   = "('cancel', 'expire', 'return', 'reject')"
	tookNothing = "(l.status = 'rejected' AND l.reason <> '" + sale.ReasonFulfilmentFailed + "')"
)

func (l *Ledger) checks() []check {
	lines := "(" + l.store.orderLines() + ") l"
	return []check{
		{"sold_within_stock", `SELECT CONCAT(sku, ': sold ', sold, ' of ', stock) FROM items
			WHERE sale_id = @sale AND (sold < 0 OR (stock <> -1 AND sold > stock))`},
		{"items_equal_flows", `SELECT CONCAT(i.sku, ': granted ', i.granted, ', sold ', i.sold, '; flows say ',
				COALESCE(f.granted, 0), ' and ', COALESCE(f.sold, 0))
			FROM items i LEFT JOIN (
				SELECT sku, -SUM(CASE WHEN kind = 'grab' THEN qty_step ELSE 0 END) AS granted, -SUM(qty_step) AS sold
				FROM flows WHERE sale_id = @sale AND counter = '' AND kind IN ` + heldKinds + ` GROUP BY sku) f ON f.sku = i.sku
			WHERE i.sale_id = @sale AND (i.granted <> COALESCE(f.granted, 0) OR i.sold <> COALESCE(f.sold, 0))`},
		{"items_equal_orders", `SELECT CONCAT(i.sku, ': sold ', i.sold, '; orders hold ', COALESCE(h.units, 0))
			FROM items i LEFT JOIN (
				SELECT l.sku, SUM(l.quantity - l.returned) AS units FROM ` + lines + `
				WHERE l.status IN ('pending_payment', 'paid', 'fulfilled') GROUP BY l.sku) h ON h.sku = i.sku
			WHERE i.sale_id = @sale AND i.sold <> COALESCE(h.units, 0)`},
		// A counter begins at 0; what an item begins at is in no flow.
		{"flows_chain", `SELECT CONCAT('flow ', seq, ' of ', sku, counter, ' begins at ', qty_before, ', the one before ended at ', COALESCE(former, 0))
			FROM (SELECT seq, sku, counter, qty_before, LAG(qty_after) OVER (PARTITION BY sku, counter ORDER BY seq) AS former
				FROM flows WHERE sale_id = @sale) c
			WHERE (former IS NOT NULL OR counter <> '') AND qty_before <> COALESCE(former, 0)`},
		{"flows_end_at_stock", `SELECT CONCAT(i.sku, ': flows end at ', f.qty_after, '; stock ', i.stock, ', sold ', i.sold)
			FROM items i JOIN flows f ON f.seq = (SELECT MAX(seq) FROM flows WHERE sale_id = @sale AND sku = i.sku)
			WHERE i.sale_id = @sale AND f.qty_after <> CASE WHEN i.stock = -1 THEN 0 ELSE i.stock END - i.sold`},
		{"orders_have_flows", `SELECT CONCAT(l.id, ' has ', l.quantity, ' of ', l.sku, ', its flow ', COALESCE(f.qty_step, 0))
			FROM ` + lines + ` LEFT JOIN flows f ON f.sale_id = @sale AND f.sku = l.sku AND f.counter = '' AND f.kind = 'grab' AND f.ref = l.id
			WHERE (f.user_id IS NOT NULL AND f.user_id <> l.user_id)
				OR COALESCE(f.qty_step, 0) <> CASE WHEN ` + tookNothing + ` THEN 0 ELSE -l.quantity END`},
		// Every order has its flow: as many flows as orders means that none has no order.
		{"flows_have_orders", `SELECT CONCAT(i.sku, ': ', COALESCE(f.n, 0), ' grabs in the flows, ', COALESCE(o.n, 0), ' in the orders')
			FROM items i
			LEFT JOIN (SELECT sku, COUNT(*) AS n FROM flows WHERE sale_id = @sale AND counter = '' AND kind = 'grab' GROUP BY sku) f ON f.sku = i.sku
			LEFT JOIN (SELECT sku, COUNT(*) AS n FROM ` + lines + ` WHERE NOT ` + tookNothing + ` GROUP BY sku) o ON o.sku = i.sku
			WHERE i.sale_id = @sale AND COALESCE(f.n, 0) <> COALESCE(o.n, 0)`},
		{"returned_equals_flows", `SELECT CONCAT(l.id, ': ', l.returned, ' of ', l.quantity, ' ', l.sku, ' returned, flows say ', COALESCE(f.units, 0))
			FROM ` + lines + ` LEFT JOIN (
				SELECT order_id, sku, SUM(qty_step) AS units FROM flows
				WHERE sale_id = @sale AND counter = '' AND kind IN ` + backKinds + ` GROUP BY order_id, sku) f
				ON f.order_id = l.id AND f.sku = l.sku
			WHERE l.returned <> COALESCE(f.units, 0) OR l.returned > l.quantity
				OR (l.status IN ('cancelled', 'expired', 'rejected') AND NOT ` + tookNothing + ` AND l.returned <> l.quantity)`},
		{"flows_have_givebacks", `SELECT CONCAT(f.kind, ':', f.ref, ' gives ', f.units, ' back, its giveback ', COALESCE(g.units, 0))
			FROM (SELECT kind, ref, SUM(qty_step) AS units FROM flows
				WHERE sale_id = @sale AND counter = '' AND kind NOT IN ('grab', 'stock') AND qty_step > 0 GROUP BY kind, ref) f
			LEFT JOIN givebacks g ON g.sale_id = @sale AND g.id = CONCAT(f.kind, ':', f.ref)
			WHERE f.units <> COALESCE(g.units, 0)`},
		// A cancelled dead letter gives back what only Redis had deducted.
		{"givebacks_have_flows", `SELECT CONCAT('giveback ', id, ' has no flow') FROM (
				SELECT id, 1 AS unexplained FROM givebacks WHERE sale_id = @sale
				UNION ALL SELECT CONCAT(kind, ':', ref), 0 FROM flows WHERE sale_id = @sale AND counter = '' AND qty_step > 0
				UNION ALL SELECT CONCAT('cancel:', order_id), 0 FROM dead_letters WHERE sale_id = @sale AND status = 'cancelled') n
			GROUP BY id HAVING MIN(unexplained) = 1`},
		{"per_user_limit", `SELECT CONCAT('user of order ', MIN(order_id), ' holds ', -SUM(qty_step), ', never were more allowed than ', @per_user)
			FROM flows WHERE sale_id = @sale AND counter = '' AND kind IN ` + heldKinds + ` AND @per_user > 0
			GROUP BY user_id HAVING -SUM(qty_step) > @per_user`},
		{"orders_expire", `SELECT CONCAT(o.id, ' is ', o.status, ' without an end') FROM orders o
			WHERE o.sale_id = @sale AND o.status = 'pending_payment' AND o.expires_at IS NULL`},
	}
}

// Verify checks every guarantee that the ledger can check by itself, for one
// sale at one moment. It reads the sale's rows several times, and keeps about 200
// bytes per counter of its limits meanwhile: for audits. It answers ErrNotFound.
func (l *Ledger) Verify(ctx context.Context, saleID string) ([]Check, error) {
	var results []Check
	err := l.consistent(ctx, func(tx *gorm.DB) error {
		row, err := take[saleRow](tx.Where("id = ?", saleID))
		if err != nil {
			return err
		}
		s, err := row.sale(nil)
		if err != nil {
			return err
		}
		most, err := highestOf(tx, &s)
		if err != nil {
			return err
		}
		for _, c := range l.checks() {
			r, err := c.run(tx, map[string]any{"sale": saleID, "per_user": most.perUser})
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results = append(results, r)
		}
		counted, err := verifyCounters(tx, &s, most)
		results = append(results, counted...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verify sale %s: %w", saleID, err)
	}
	return results, nil
}

func (c check) run(tx *gorm.DB, values map[string]any) (Check, error) {
	var found violations
	err := eachRow(tx.Raw(c.query, values), func(scan scanner) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		found.add(text)
		return nil
	})
	return found.check(c.name), err
}
