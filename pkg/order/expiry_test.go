package order_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// soon are settings of an Expiry that looks often.
var soon = order.ExpiryConfig{Interval: 10 * time.Millisecond}

// sell grants a unit to each of n users in Redis, writes their orders, and has
// their payment windows end.
func (c *counter) sell(prefix string, n int) []sale.Grant {
	c.t.Helper()
	grants := make([]sale.Grant, n)
	for i := range grants {
		grants[i] = c.win(fmt.Sprintf("%s-%d", prefix, i))
	}
	c.acknowledge()
	c.write(grants...)
	c.exec("UPDATE orders SET expires_at = '2001-01-01 00:00:00' WHERE status = 'pending_payment'")
	return grants
}

// real gives stock back in Redis and tells the ledger.
func (c *counter) real() *reconcile.Givebacks {
	return reconcile.NewGivebacks(c.store, c.ledger, c.stream)
}

// expire runs an Expiry until stop is called or the test ends.
func (c *counter) expire(cfg order.ExpiryConfig, back order.ManyGivebacks) (*telemetry.ExpiryMetrics, func()) {
	c.t.Helper()
	metrics := telemetry.NewExpiryMetrics(prometheus.NewRegistry(), order.ExpiryReasons)
	e := get[*order.Expiry](c.t)(order.NewExpiry(cfg, c.ledger, back, c.api.Changed, metrics, c.log))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			c.t.Errorf("expiry: %v", err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	c.t.Cleanup(stop)
	return metrics, stop
}

// requireRemaining holds what Redis has left of A, and how many units users hold there.
func (c *counter) requireRemaining(units, held int64) {
	c.t.Helper()
	state := get[stock.State](c.t)(c.store.State(c.t.Context(), c.sale.ID, []string{"A"}))
	var holds int64
	must(c.t, c.store.Holdings(c.t.Context(), c.sale.ID, func(h stock.Holding) error {
		holds += h.Units
		return nil
	}))
	if state.Remaining["A"] != units || holds != held {
		c.t.Errorf("Redis has %d units, users hold %d, want %d and %d", state.Remaining["A"], holds, units, held)
	}
}

func (c *counter) awaitApplied(givebacks int64) {
	c.t.Helper()
	harness.Eventually(c.t, wait, "every giveback is applied", func() (bool, string) {
		n := c.count("SELECT COUNT(*) FROM givebacks WHERE applied_at IS NOT NULL")
		return n == givebacks, fmt.Sprint(n)
	})
}

func TestOrdersThatAreNotPaidExpireOnceHoweverManyLookAfterThem(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	grants := c.sell("late", 120)
	paid := grants[0].OrderID
	get[sale.Order](t)(c.ledger.Pay(t.Context(), paid))
	cfg := soon
	cfg.Batch = 7
	var all []*telemetry.ExpiryMetrics
	for range 3 {
		metrics, _ := c.expire(cfg, c.real())
		all = append(all, metrics)
	}
	c.awaitApplied(119)
	if n := c.orders(sale.OrderExpired); n != 119 {
		t.Errorf("%d orders expired, want 119", n)
	}
	if status := c.status(paid); status != sale.OrderPaid {
		t.Errorf("the paid order is %s", status)
	}
	c.requireRemaining(999, 1)
	expired := 0.0
	for _, metrics := range all {
		expired += testutil.ToFloat64(metrics.Orders)
	}
	if expired != 119 {
		t.Errorf("the metrics count %v expired orders", expired)
	}
	c.ask("GET", "/v1/orders/"+grants[1].OrderID, grants[1].User).
		require(t, 200, map[string]any{"status": "expired", "reason": "payment_timeout"})
}

func TestAProcessWhoseClockIsAheadExpiresNothingEarly(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	grants := c.sell("late", 2)
	c.exec("UPDATE orders SET expires_at = '2003-01-01 00:00:00' WHERE id = '" + grants[1].OrderID + "'")
	begun := time.Date(2002, 1, 1, 0, 0, 0, 0, time.UTC) // the year it is to the database
	behind := get[*ledger.Ledger](t)(ledger.Open(t.Context(), ledger.Config{DSN: fmt.Sprintf("%s&timestamp=%d", c.dsn, begun.Unix())}))
	defer behind.Close()
	c.ledger = behind
	_, stop := c.expire(soon, c.real())
	harness.Eventually(t, wait, "the order that is due has expired", func() (bool, string) {
		status := c.status(grants[0].OrderID)
		return status == sale.OrderExpired, string(status)
	})
	stop()
	if status := c.status(grants[1].OrderID); status != sale.OrderPendingPayment {
		t.Errorf("the order that is due in a year is %s", status)
	}
}

func TestWhatACrashLeftBetweenTheLedgerAndRedisTheRelayGivesBackOnce(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	c.sell("late", 40)
	c.back.err = errors.New("the process died here")
	metrics, stop := c.expire(soon, c.back)
	harness.Eventually(t, wait, "all orders expired", func() (bool, string) {
		n := c.orders(sale.OrderExpired)
		return n == 40, fmt.Sprint(n)
	})
	stop()
	c.requireRemaining(960, 40)
	if n := testutil.ToFloat64(metrics.Failures.Of(order.ExpiryGivebackFailed)); n != 1 {
		t.Errorf("the metrics count %v batches that were not given back", n)
	}

	relay := get[*reconcile.Reconciler](t)(reconcile.New(reconcile.Config{}, c.store, c.stream, c.ledger, nil, c.log))
	for range 2 {
		must(t, relay.RelayAll(t.Context()))
		c.awaitApplied(40)
		c.requireRemaining(1000, 0)
	}
	must(t, c.real().ReturnAll(t.Context(), c.back.all)) // the process was not dead after all
	c.requireRemaining(1000, 0)
}

func TestOrdersExpireWhileRedisIsAwayAndTheRelayGivesThemBack(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	c.sell("late", 30)
	c.redis.Pause()
	cfg := soon
	cfg.Batch, cfg.GivebackTimeout = 10, 50*time.Millisecond
	metrics, stop := c.expire(cfg, c.real())
	harness.Eventually(t, wait, "all orders expired", func() (bool, string) {
		n := c.orders(sale.OrderExpired)
		return n == 30, fmt.Sprint(n)
	})
	stop()
	c.redis.Resume()
	if n := testutil.ToFloat64(metrics.Failures.Of(order.ExpiryGivebackFailed)); n == 0 {
		t.Error("the metrics do not tell that stock was not given back at once")
	}
	relay := get[*reconcile.Reconciler](t)(reconcile.New(reconcile.Config{}, c.store, c.stream, c.ledger, nil, c.log))
	must(t, relay.RelayAll(t.Context()))
	c.awaitApplied(30)
	c.requireRemaining(1000, 0)
}

func TestExpiryGoesOnAfterTheDatabaseWasAway(t *testing.T) {
	database := harness.MariaDB(t)
	c := openCounterOn(t, database, order.APIConfig{})
	c.sell("late", 10)
	database.Kill()
	metrics, _ := c.expire(soon, c.real())
	harness.Eventually(t, wait, "a round failed", func() (bool, string) {
		n := testutil.ToFloat64(metrics.Failures.Of(order.ExpiryLedgerFailed))
		return n > 0, fmt.Sprint(n)
	})
	database.Start()
	c.awaitApplied(10)
	c.requireRemaining(1000, 0)
}

func TestAnOrderThatCannotExpireIsToldAndKeepsNobodyWaiting(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	log := &records{}
	c.log = log.logger()
	grants := c.sell("late", 5)
	c.exec("UPDATE orders SET items = REPLACE(items, '\"A\"', '\"Z\"') WHERE id = '" + grants[0].OrderID + "'")
	cfg := soon
	cfg.Batch = 1
	metrics, stop := c.expire(cfg, c.real())
	c.awaitApplied(4)
	harness.Eventually(t, wait, "the metrics tell of the stuck order", func() (bool, string) {
		n := testutil.ToFloat64(metrics.Stuck)
		return n == 1, fmt.Sprint(n)
	})
	stop()
	if n := log.count("ERROR unpaid orders can't expire"); n != 1 {
		t.Errorf("the stuck order was told %d times, want once:\n%s", n, log)
	}
}

func TestExpiryRefusesSettingsOutOfRange(t *testing.T) {
	for name, cfg := range map[string]order.ExpiryConfig{
		"Interval":        {Interval: time.Millisecond},
		"Batch":           {Batch: ledger.PageMax + 1},
		"BatchesMax":      {BatchesMax: -1},
		"TxTimeout":       {TxTimeout: 2 * time.Hour},
		"GivebackTimeout": {GivebackTimeout: -1},
	} {
		if _, err := order.NewExpiry(cfg, nil, nil, nil, nil, nil); err == nil || !contains(err.Error(), name) {
			t.Errorf("%s out of range: the error is %v", name, err)
		}
	}
}
