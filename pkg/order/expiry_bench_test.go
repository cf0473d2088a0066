package order_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

const (
	dueOrders = 100_000
	dueBatch  = 500
)

// BenchmarkExpiry has an Expiry end 100,000 unpaid orders: in a MariaDB that flushes every
// commit, and in Redis. The orders are written before the clock runs. bare-orders/s is
// what the same server does when the very rows are merely changed and inserted, as
// many per transaction, and ratio the first over the second.
func BenchmarkExpiry(b *testing.B) {
	var expiring, bare time.Duration
	for range b.N {
		c := openCounterOn(b, harness.SharedMariaDB(b), order.APIConfig{})
		c.exec(fmt.Sprint("UPDATE items SET stock = ", dueOrders, " WHERE sku = 'A'"))
		grants := c.crowd("late", dueOrders)
		c.loadWith(0, grants...)
		for first := 0; first < dueOrders; first += benchTx {
			c.write(grants[first : first+benchTx]...)
		}
		c.exec("UPDATE orders SET expires_at = created_at")
		metrics := telemetry.NewExpiryMetrics(prometheus.NewRegistry(), order.ExpiryReasons)
		ctx, stop := context.WithCancel(b.Context())
		e := get[*order.Expiry](b)(order.NewExpiry(order.ExpiryConfig{Batch: dueBatch}, c.ledger, c.real(), nil, metrics, c.log))

		begin := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		harness.Eventually(b, 10*wait, "all orders expired", func() (bool, string) {
			n := testutil.ToFloat64(metrics.Orders)
			return n == dueOrders && c.count("SELECT COUNT(*) FROM givebacks WHERE applied_at IS NULL") == 0, fmt.Sprint(n)
		})
		expiring += time.Since(begin)
		stop()
		must(b, <-ended)
		c.requireRemaining(dueOrders, 0)
		if n := c.orders(sale.OrderExpired); n != dueOrders {
			b.Errorf("%d orders expired", n)
		}
		bare += c.bareExpiry()
	}
	b.ReportMetric(float64(dueOrders*b.N)/expiring.Seconds(), "orders/s")
	b.ReportMetric(float64(dueOrders*b.N)/bare.Seconds(), "bare-orders/s")
	b.ReportMetric(float64(bare)/float64(expiring), "ratio")
	b.ReportMetric(expiring.Seconds()/float64(b.N), "s/100k")
	b.ReportMetric(0, "ns/op")
}

// bareExpiry changes and inserts the rows that expired orders have, in copies of the
// tables, and returns how long that took.
func (d *desk) bareExpiry() time.Duration {
	d.t.Helper()
	ids := d.bareRows("orders", "id", "TRUE")
	d.exec("INSERT INTO bare_orders SELECT * FROM orders")
	d.exec("UPDATE bare_orders SET status = 'pending_payment', reason = ''")
	tables := []bareRows{
		d.bareRows("flows", flowColumns, "kind = 'expire'"), d.bareRows("events", eventColumns, "kind = 'expired'"),
		d.bareRows("givebacks", givebackColumns, "TRUE"),
	}
	expire := "UPDATE bare_orders SET status = 'expired', reason = 'payment_timeout', updated_at = NOW(3) WHERE id IN (" +
		strings.TrimSuffix(strings.Repeat("?,", dueBatch), ",") + ")"
	return d.inBare(dueOrders, dueBatch, func(ctx context.Context, tx *sql.Tx, first int) error {
		if _, err := tx.ExecContext(ctx, expire, ids.values[first:first+dueBatch]...); err != nil {
			return err
		}
		for _, t := range tables {
			if err := t.insert(ctx, tx, first, dueBatch); err != nil {
				return err
			}
		}
		return nil
	})
}
