package order_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestEveryGrantBecomesOneOrderAndFencesAreProgress(t *testing.T) {
	harness.SharedMariaDB(t) // outlives the test
	harness.NoLeaks(t)
	d := openDesk(t, 10_000)
	d.publish(d.crowd("first", 120)...)
	d.begin()
	d.publish(d.crowd("second", 700)...)
	d.publish(d.crowd("third", 700)...)
	d.publish() // a batch without grants
	d.begin()

	stop := d.work(order.WorkerConfig{})
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	stop()

	d.requireOneOrderEach(1520)
	if n := testutil.ToFloat64(d.metrics.Grants); n != 1520 {
		t.Errorf("counted %v grants, want 1520", n)
	}
}

func TestReplayOfTheWholeStreamChangesNoRow(t *testing.T) {
	d := openDesk(t, 10_000)
	poison := d.grant("poison", "NOT-AN-ITEM", 1)
	cancelled := d.grant("cancelled", "NOT-AN-ITEM", 1)
	returned := d.grant("returned", "A", 2)
	d.publish(append(d.crowd("first", 300), poison)...)
	d.publish(append(d.crowd("second", 300), cancelled, returned)...)
	d.publishRaw([]byte("no batch at all"))
	d.begin()
	d.publish(d.crowd("first", 300)...) // once more, under another fence

	stop := d.work(quick)
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	stop()
	must(t, order.NewDeadLetters(d.ledger, &returns{}, d.log).Cancel(t.Context(), d.sale.ID, cancelled.OrderID, "test", ""))
	_, _, err := d.ledger.Cancel(t.Context(), returned.OrderID, "test", "")
	must(t, err)
	before := d.checksums()
	if n := d.count("SELECT COUNT(*) FROM dead_letters"); n != 3 {
		t.Fatalf("%d dead letters, want 3", n)
	}

	must(t, d.js().DeleteConsumer(t.Context(), stream.GrantsStream, stream.OrdersConsumer))
	d.work(quick)
	d.awaitSettled()

	if after := d.checksums(); after != before {
		t.Errorf("tables after the replay:\n%s\nbefore:\n%s", after, before)
	}
}

func TestTwoWorkersWriteEachGrantOnce(t *testing.T) {
	d := openDesk(t, 10_000)
	for i := range 40 {
		d.publish(d.crowd(fmt.Sprint("batch-", i), 50)...)
	}
	for range 2 {
		d.workWith(order.WorkerConfig{Loops: 2, FetchMax: 3, GrantsPerTx: 100}, d.openLedger(), d.openStream())
	}
	d.awaitProgress(d.lastSeq())
	d.requireOneOrderEach(2000)
}

func TestWorkStoppedInTheMiddleIsFinishedByAnother(t *testing.T) {
	harness.SharedMariaDB(t) // outlives the test
	harness.NoLeaks(t)
	d := openDesk(t, 10_000)
	for i := range 60 {
		d.publish(d.crowd(fmt.Sprint("batch-", i), 50)...)
	}
	cfg := order.WorkerConfig{FetchMax: 4, GrantsPerTx: 100}
	stop := d.work(cfg)
	d.awaitSomeOrders(0)
	stop()

	stop = d.work(cfg)
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	stop()
	d.requireOneOrderEach(3000)
}

func TestAWorkerTakesNoMoreMessagesThanItCanWriteAtOnce(t *testing.T) {
	d := openDesk(t, 10_000)
	for i := range 40 {
		d.publish(d.crowd(fmt.Sprint("batch-", i), 50)...)
	}
	var most atomic.Int64
	taken := func(orderID string) {
		if strings.HasSuffix(orderID, "0") { // now and then
			most.Store(max(most.Load(), int64(d.inHand())))
		}
	}
	stop := d.workTelling(order.WorkerConfig{Loops: 1, GrantsPerTx: 100}, d.ledger, d.stream, taken)
	d.awaitProgress(d.lastSeq())
	stop()
	d.requireOneOrderEach(2000)
	if n := most.Load(); n != 2 {
		t.Errorf("the worker had up to %d messages of 50 grants in hand, want 2: a transaction of 100", n)
	}
}

// inHand is how many messages are delivered and not settled.
func (d *desk) inHand() int {
	consumer := get[jetstream.Consumer](d.t)(d.js().Consumer(d.t.Context(), stream.GrantsStream, stream.OrdersConsumer))
	return get[*jetstream.ConsumerInfo](d.t)(consumer.Info(d.t.Context())).NumAckPending
}

func TestSlowTransactionIsNotDeliveredTwice(t *testing.T) {
	d := openDesk(t, 100)
	const ackWait = time.Second
	slow := get[*stream.Stream](t)(stream.Open(stream.Config{URL: d.nats.URL(), AckWait: ackWait, Logger: d.log}))
	t.Cleanup(slow.Close)
	must(t, slow.AwaitTopology(t.Context()))
	last := d.publish(d.crowd("crowd", 10)...)
	lock := get[*sql.Tx](t)(d.db.BeginTx(t.Context(), nil))
	defer func() { _ = lock.Rollback() }()
	var units int64
	must(t, lock.QueryRowContext(t.Context(), "SELECT stock FROM items WHERE sku = 'A' FOR UPDATE").Scan(&units))

	watch := &deliveries{Stream: slow}
	d.workWith(order.WorkerConfig{AckWait: ackWait}, d.ledger, watch)
	begin := time.Now()
	harness.Eventually(t, wait, "the stream would have lost its patience twice", func() (bool, string) {
		return watch.most() > 1 || time.Since(begin) > 5*ackWait/2, ""
	})
	must(t, lock.Rollback())
	d.awaitProgress(last)
	d.awaitSettled()

	d.requireOneOrderEach(10)
	if most := watch.most(); most != 1 {
		t.Errorf("a message was delivered %d times, want 1", most)
	}
}

func TestOrdersBeyondTheStockAreRejectedAndAlarmed(t *testing.T) {
	d := openDesk(t, 10)
	log := &records{}
	d.log = log.logger()
	d.publish(d.crowd("crowd", 13)...)
	d.work(order.WorkerConfig{})
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()

	if live, rejected := d.orders(sale.OrderPendingPayment), d.orders(sale.OrderRejected); live != 10 || rejected != 3 {
		t.Errorf("%d live and %d rejected orders, want 10 and 3", live, rejected)
	}
	harness.Eventually(t, wait, "the alarm", func() (bool, string) {
		n := testutil.ToFloat64(d.metrics.Rejected)
		return n == 3 && log.count("ERROR order rejected") == 3, fmt.Sprint(n, log)
	})
}

func TestWorkerRefusesSettingsOutOfRange(t *testing.T) {
	d := openDesk(t, 1)
	for name, cfg := range map[string]order.WorkerConfig{
		"Loops":         {Loops: 65},
		"FetchMax":      {FetchMax: -1},
		"GrantsPerTx":   {GrantsPerTx: 10_001},
		"ApartAfter":    {ApartAfter: -1},
		"MaxDeliveries": {MaxDeliveries: 1001},
		"RetryBase":     {RetryBase: time.Microsecond},
		"RetryMax":      {RetryBase: time.Second, RetryMax: time.Millisecond},
		"AckWait":       {AckWait: time.Millisecond},
		"TxTimeout":     {TxTimeout: -1},
		"PingTimeout":   {PingTimeout: 2 * time.Minute},
	} {
		_, err := order.NewWorker(cfg, d.ledger, d.stream, nil, d.metrics, d.log)
		if err == nil || !contains(err.Error(), name) {
			t.Errorf("%s out of range: the error is %v", name, err)
		}
	}
}
