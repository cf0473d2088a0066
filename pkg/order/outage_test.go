package order_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// impatient settings give a message up so soon that an outage would kill it, if
// outages counted.
var impatient = order.WorkerConfig{
	FetchMax: 4, GrantsPerTx: 100, MaxDeliveries: 1, ApartAfter: 1,
	RetryBase: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond, AckWait: 5 * time.Second,
}

func TestDatabaseKilledInTheMiddleCostsNoGrant(t *testing.T) {
	database := harness.MariaDB(t)
	d := openDeskOn(t, database, 10_000)
	for i := range 60 {
		d.publish(d.crowd(fmt.Sprint("batch-", i), 50)...)
	}
	watch := &deliveries{Stream: d.stream}
	d.workWith(impatient, d.ledger, watch)
	d.awaitSomeOrders(0)

	database.Kill()
	d.publish(d.crowd("meanwhile", 50)...)
	harness.Eventually(t, wait, "messages come more often than the worker has patience", func() (bool, string) {
		most := watch.most()
		return most > impatient.MaxDeliveries+1, fmt.Sprint(most)
	})
	database.Start()

	d.awaitProgress(d.lastSeq())
	d.requireOneOrderEach(3050)
	d.requireNoDeadLetters()
}

func TestDatabaseThatHangsCostsNoGrant(t *testing.T) {
	database := harness.MariaDB(t)
	d := openDeskOn(t, database, 10_000)
	for i := range 20 {
		d.publish(d.crowd(fmt.Sprint("batch-", i), 50)...)
	}
	cfg := impatient
	cfg.TxTimeout, cfg.PingTimeout = 200*time.Millisecond, 50*time.Millisecond
	watch := &deliveries{Stream: d.stream}
	d.workWith(cfg, d.ledger, watch)
	d.awaitSomeOrders(0)

	database.Pause()
	d.publish(d.crowd("meanwhile", 50)...)
	harness.Eventually(t, wait, "messages come more often than the worker has patience", func() (bool, string) {
		most := watch.most()
		return most > cfg.MaxDeliveries+1, fmt.Sprint(most)
	})
	database.Resume()

	d.awaitProgress(d.lastSeq())
	d.requireOneOrderEach(1050)
	d.requireNoDeadLetters()
}

// holdItems locks the rows of a sale's items until release is called.
func (d *desk) holdItems(saleID string) (release func()) {
	d.t.Helper()
	tx := get[*sql.Tx](d.t)(d.db.BeginTx(context.Background(), nil))
	var units int64
	err := tx.QueryRowContext(d.t.Context(), "SELECT SUM(stock) FROM (SELECT stock FROM items FORCE INDEX (PRIMARY) WHERE sale_id = ? FOR UPDATE) held", saleID).Scan(&units)
	release = sync.OnceFunc(func() { _ = tx.Rollback() })
	d.t.Cleanup(release)
	must(d.t, err)
	return release
}

func TestLockThatOutlastsAllDeliveriesCostsNoGrant(t *testing.T) {
	d := openDesk(t, 10_000)
	for i := range 5 {
		d.publish(d.crowd(fmt.Sprint("batch-", i), 20)...)
	}
	release := d.holdItems(d.sale.ID)
	cfg := quick
	cfg.TxTimeout = 100 * time.Millisecond
	watch := &deliveries{Stream: d.stream}
	d.workWith(cfg, d.ledger, watch)
	harness.Eventually(t, wait, "messages come more often than the worker has patience", func() (bool, string) {
		most := watch.most()
		return most > cfg.MaxDeliveries+2, fmt.Sprint(most)
	})
	d.requireNoDeadLetters()
	release()

	d.awaitProgress(d.lastSeq())
	d.requireOneOrderEach(100)
	d.requireNoDeadLetters()
}

func TestLockedSaleDoesNotKeepOthersWaiting(t *testing.T) {
	d := openDesk(t, 10_000)
	locked := d.sale
	other := locked
	other.ID += "-other"
	other = get[sale.Sale](t)(d.ledger.CreateSale(t.Context(), other))
	grants := 0
	for i := range 3 { // of both sales in turn, so that every fetch has both
		for _, d.sale = range []sale.Sale{locked, other} {
			d.begin()
			d.publish(d.crowd(fmt.Sprint("batch-", i), 2)...)
		}
		grants += 2
	}
	release := d.holdItems(locked.ID)
	l := get[*ledger.Ledger](t)(ledger.Open(t.Context(), ledger.Config{DSN: d.dsn, LockWait: time.Second, Attempts: 1}))
	t.Cleanup(func() { _ = l.Close() })
	d.workWith(order.WorkerConfig{Loops: 1, TxTimeout: 20 * time.Second, RetryBase: time.Hour, RetryMax: time.Hour}, l, d.stream)
	harness.Eventually(t, wait, "the other sale's orders", func() (bool, string) {
		n := d.count("SELECT COUNT(*) FROM orders WHERE sale_id = ?", other.ID)
		return n == int64(grants), fmt.Sprint(n)
	})
	if n := d.count("SELECT COUNT(*) FROM orders WHERE sale_id = ?", locked.ID); n != 0 {
		t.Errorf("%d orders of the locked sale, want none: its items are held", n)
	}
	release()
	d.requireNoDeadLetters()
}

func TestStreamKilledInTheMiddleCostsNoGrant(t *testing.T) {
	d := openDesk(t, 10_000)
	d.work(impatient)
	for round := range 3 {
		for i := range 20 {
			d.publish(d.crowd(fmt.Sprint("batch-", round, "-", i), 50)...)
		}
		d.awaitSomeOrders(int64(round * 1000))
		d.nats.Kill()
		d.nats.Start()
		harness.Eventually(t, wait, "the stream is back", func() (bool, string) {
			err := d.stream.Connected(t.Context())
			return err == nil, fmt.Sprint(err)
		})
	}
	d.awaitProgress(d.lastSeq())
	d.requireOneOrderEach(3000)
	d.requireNoDeadLetters()
}

func TestDeadLetterWaitsForTheStreamThatTakesIt(t *testing.T) {
	d := openDesk(t, 100)
	must(t, d.js().DeleteStream(t.Context(), stream.DeadStream))
	d.publish(append(d.crowd("mate", 3), d.grant("poison", "NOT-AN-ITEM", 1))...)
	watch := &deliveries{Stream: d.stream}
	d.workWith(impatient, d.ledger, watch)
	harness.Eventually(t, wait, "the burial is tried again", func() (bool, string) {
		most := watch.most()
		return most > impatient.MaxDeliveries+1, fmt.Sprint(most)
	})
	d.requireOneOrderEach(3)
	d.requireNoDeadLetters()

	must(t, d.stream.EnsureTopology(t.Context()))
	d.awaitProgress(d.lastSeq())
	if n := d.count("SELECT COUNT(*) FROM dead_letters"); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

// most is how often the message was delivered that came most often.
func (d *deliveries) most() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := 0
	for _, one := range d.all {
		most = max(most, one.number)
	}
	return most
}

// awaitSomeOrders waits until there are more live orders than before.
func (d *desk) awaitSomeOrders(before int64) {
	d.t.Helper()
	harness.Eventually(d.t, wait, "some orders are written", func() (bool, string) {
		n := d.orders(sale.OrderPendingPayment)
		return n > before, fmt.Sprint(n)
	})
}

func (d *desk) requireNoDeadLetters() {
	d.t.Helper()
	if n := d.count("SELECT COUNT(*) FROM dead_letters"); n != 0 {
		d.t.Errorf("%d dead letters, want none", n)
	}
}
