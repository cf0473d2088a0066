package order_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// beside runs a duty of the order role beside the test.
func (d *desk) beside(duty func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := duty(ctx); err != nil {
			d.t.Error(err)
		}
	})
	d.t.Cleanup(func() { cancel(); running.Wait() })
}

// catchUp looks often.
func (d *desk) catchUp() {
	d.beside(order.NewCatchUp(20*time.Millisecond, d.ledger, d.stream, d.metrics.Rewinds, d.log).Run)
}

// rewinds is how often the stream was rewound.
func (d *desk) rewinds() int { return int(testutil.ToFloat64(d.metrics.Rewinds)) }

// lose takes the last messages' orders out of the ledger, as a failover to a server that lags does.
func (d *desk) lose(fromSeq uint64, users ...string) {
	d.t.Helper()
	for _, user := range users {
		d.exec("DELETE FROM orders WHERE user_id = '" + user + "'")
		d.exec("DELETE FROM flows WHERE user_id = '" + user + "'")
		d.exec("UPDATE items SET sold = sold - 1, granted = granted - 1 WHERE sku = 'A'")
	}
	d.exec(fmt.Sprintf("UPDATE progress SET last_seq = %d, last_at = 0", fromSeq-1))
}

func TestSettledMessagesThatTheLedgerLostAreWrittenAgain(t *testing.T) {
	d := openDesk(t, 1000)
	log := &records{}
	d.log = log.logger()
	for i := range 4 {
		d.publish(d.grant(fmt.Sprint("user-", i), "A", 1))
	}
	d.work(order.WorkerConfig{Loops: 1}) // in the stream's order, so that the last orders can be lost
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	d.lose(4, "user-2", "user-3")

	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "lag", Help: "Of the test."})
	d.beside(order.NewLag(d.ledger, d.stream, gauge).Run)
	harness.Eventually(t, wait, "the lag shows what is lost", func() (bool, string) {
		lag := testutil.ToFloat64(gauge)
		return lag == 2, fmt.Sprint(lag)
	})
	d.catchUp()
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	d.requireOneOrderEach(4)
	if n := d.rewinds(); n != 1 || log.count("WARN the ledger lacks settled messages; the order workers read the stream again") != 1 {
		t.Errorf("%d rewinds, want 1, in\n%s", n, log)
	}
}

func TestAStreamThatWentBackIsReadFromItsFirst(t *testing.T) {
	d := openDesk(t, 1000)
	for i := range 4 {
		d.publish(d.grant(fmt.Sprint("user-", i), "A", 1))
	}
	d.work(order.WorkerConfig{Loops: 1}) // in the stream's order, so that the last orders can be lost
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	// The ledger comes from a longer course of the stream, and lacks an order of this one.
	d.lose(4, "user-3")
	d.exec("UPDATE progress SET last_seq = 900, last_at = 1")

	d.catchUp()
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()
	d.requireOneOrderEach(4)
	if n := d.rewinds(); n != 1 {
		t.Errorf("%d rewinds, want 1", n)
	}
}

func TestNothingIsReadAgainForMessagesThatWerePurged(t *testing.T) {
	d := openDesk(t, 1000)
	grants := get[jetstream.Stream](t)(d.js().Stream(t.Context(), stream.GrantsStream))
	get[*jetstream.PubAck](t)(d.js().Publish(t.Context(), "grants.other", []byte("x")))
	d.publish(d.crowd("crowd", 3)...)
	get[*jetstream.PubAck](t)(d.js().Publish(t.Context(), "grants.other", []byte("y")))
	d.publish(d.crowd("more", 3)...)
	must(t, grants.Purge(t.Context(), jetstream.WithPurgeSubject("grants.other")))

	d.work(order.WorkerConfig{})
	d.catchUp()
	d.awaitProgress(d.lastSeq())
	d.requireOneOrderEach(6)
	if n := d.rewinds(); n != 0 {
		t.Errorf("%d rewinds, want none", n)
	}
}
