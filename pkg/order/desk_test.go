package order_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

func TestMain(m *testing.M) { harness.Main(m) }

// wait is how long a test waits for something that is bound to happen.
const wait = 60 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// desk is where grants become orders: a stream, a ledger, and a sale in both.
type desk struct {
	t       testing.TB
	nats    *harness.NATSServer
	dsn     string
	db      *sql.DB // looks past the ledger
	stream  *stream.Stream
	ledger  *ledger.Ledger
	metrics *telemetry.OrderMetrics
	log     *slog.Logger
	sale    sale.Sale
	fence   stream.Fence
	batches uint64
}

func openDesk(t testing.TB, units int64) *desk {
	t.Helper()
	return openDeskOn(t, harness.SharedMariaDB(t), units)
}

func openDeskOn(t testing.TB, server *harness.MySQLServer, units int64) *desk {
	t.Helper()
	d := &desk{t: t, nats: harness.NATS(t), dsn: server.NewDatabase(t), log: slog.New(slog.DiscardHandler)}
	d.metrics = telemetry.NewOrderMetrics(prometheus.NewRegistry(), order.Tables, order.RetryReasons)
	d.db = get[*sql.DB](t)(sql.Open("mysql", d.dsn))
	t.Cleanup(func() { _ = d.db.Close() })
	d.ledger = d.openLedger()
	must(t, d.ledger.Migrate(t.Context()))
	d.stream = d.openStream()
	must(t, d.stream.AwaitTopology(t.Context()))
	now := time.Now()
	d.sale = get[sale.Sale](t)(d.ledger.CreateSale(t.Context(), sale.Sale{
		ID: harness.Name(t), Name: "test", Status: sale.StatusApproved, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		PaymentWindow: sale.Duration(time.Hour), Timezone: "UTC",
		Items: []sale.Item{{SKU: "A", Stock: units, PriceCents: 100}, {SKU: "B", Stock: sale.Unlimited, PriceCents: 5}},
	}))
	d.begin()
	return d
}

func (d *desk) openLedger() *ledger.Ledger {
	d.t.Helper()
	l := get[*ledger.Ledger](d.t)(ledger.Open(d.t.Context(), ledger.Config{
		DSN: d.dsn, Attempts: 3, RetryMax: 50 * time.Millisecond, DialTimeout: time.Second, Timeout: 5 * time.Second,
	}))
	d.t.Cleanup(func() { _ = l.Close() })
	return l
}

func (d *desk) openStream() *stream.Stream {
	d.t.Helper()
	s := get[*stream.Stream](d.t)(stream.Open(stream.Config{
		FirstSeq: 1,
		URL:      d.nats.URL(), Logger: slog.New(slog.DiscardHandler), AckWait: 5 * time.Second,
		ReconnectWait: 10 * time.Millisecond, PingInterval: 200 * time.Millisecond, RequestTimeout: time.Second,
	}))
	d.t.Cleanup(s.Close)
	return s
}

// begin publishes the next fence.
func (d *desk) begin() {
	d.t.Helper()
	d.fence = get[stream.Fence](d.t)(d.stream.BeginGeneration(d.t.Context(), d.sale.ID, 1))
}

// grant is a user's grant of units of an item.
func (d *desk) grant(user, sku string, units int64) sale.Grant {
	at := time.Now().UTC().Truncate(time.Millisecond)
	return sale.Grant{
		Kind: sale.GrantGrab, OrderID: sale.OrderID(d.sale.ID, user, "k"), User: user, Key: "k", IP: "192.0.2.1",
		At: at, ExpiresAt: at.Add(time.Hour), Lines: []sale.Line{{SKU: sku, Quantity: units, PriceCents: 100}},
	}
}

// crowd is a grant of one unit of A for each of n users.
func (d *desk) crowd(prefix string, n int) []sale.Grant {
	grants := make([]sale.Grant, n)
	for i := range grants {
		grants[i] = d.grant(fmt.Sprintf("%s-%d", prefix, i), "A", 1)
	}
	return grants
}

// publish puts a batch into the stream.
func (d *desk) publish(grants ...sale.Grant) uint64 {
	d.t.Helper()
	d.batches++
	head := sale.BatchHead{Generation: d.fence.Generation, Fence: d.fence.Seq, Number: d.batches, Process: "desk"}
	body := sale.EncodeBatch(sale.Batch{BatchHead: head, Grants: grants})
	return get[uint64](d.t)(d.stream.Publish(d.t.Context(), d.sale.ID, head, body))
}

// publishRaw puts anything onto the sale's subject.
func (d *desk) publishRaw(body []byte) uint64 {
	d.t.Helper()
	return get[*jetstream.PubAck](d.t)(d.js().Publish(d.t.Context(), "grants."+d.sale.ID, body)).Sequence
}

func (d *desk) js() jetstream.JetStream {
	d.t.Helper()
	return get[jetstream.JetStream](d.t)(jetstream.New(d.nats.Conn()))
}

// quick are settings of a worker that gives up soon.
var quick = order.WorkerConfig{MaxDeliveries: 3, ApartAfter: 2, RetryBase: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond}

// work runs a worker until stop is called or the test ends.
func (d *desk) work(cfg order.WorkerConfig) (stop func()) {
	d.t.Helper()
	return d.workWith(cfg, d.ledger, d.stream)
}

func (d *desk) workWith(cfg order.WorkerConfig, l order.Ledger, s order.Stream) (stop func()) {
	d.t.Helper()
	return d.workTelling(cfg, l, s, nil)
}

func (d *desk) workTelling(cfg order.WorkerConfig, l order.Ledger, s order.Stream, written func(string)) (stop func()) {
	d.t.Helper()
	w := get[*order.Worker](d.t)(order.NewWorker(cfg, l, s, written, d.metrics, d.log))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			d.t.Errorf("worker: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	d.t.Cleanup(stop)
	return stop
}

// awaitProgress waits until everything up to a sequence is written.
func (d *desk) awaitProgress(through uint64) {
	d.t.Helper()
	id := get[int64](d.t)(d.stream.StreamID(d.t.Context()))
	harness.Eventually(d.t, wait, "the stream is written", func() (bool, string) {
		done, err := d.ledger.Progress(d.t.Context(), id)
		return err == nil && len(done) == 1 && done[0].First == 1 && done[0].Last == through, fmt.Sprint(done, err, ", want 1 to ", through)
	})
}

// awaitSettled waits until the consumer has nothing left to deliver.
func (d *desk) awaitSettled() {
	d.t.Helper()
	harness.Eventually(d.t, wait, "every message is settled", func() (bool, string) {
		info, err := d.stream.Info(d.t.Context())
		if err != nil {
			return false, err.Error()
		}
		consumer, err := d.js().Consumer(d.t.Context(), stream.GrantsStream, stream.OrdersConsumer)
		if err != nil {
			return false, err.Error()
		}
		state := consumer.CachedInfo()
		return state.AckFloor.Stream == info.LastSeq, fmt.Sprintf("%+v of %d", state.AckFloor, info.LastSeq)
	})
}

// lastSeq is the stream's last sequence.
func (d *desk) lastSeq() uint64 {
	d.t.Helper()
	return get[stream.Status](d.t)(d.stream.Info(d.t.Context())).LastSeq
}

// count runs a query that answers with one number.
func (d *desk) count(query string, args ...any) int64 {
	d.t.Helper()
	var n int64
	must(d.t, d.db.QueryRowContext(d.t.Context(), query, args...).Scan(&n))
	return n
}

// orders is how many orders a status has.
func (d *desk) orders(status sale.OrderStatus) int64 {
	d.t.Helper()
	return d.count("SELECT COUNT(*) FROM orders WHERE status = ?", status)
}

func (d *desk) status(orderID string) sale.OrderStatus {
	d.t.Helper()
	return get[sale.Order](d.t)(d.ledger.GetOrder(d.t.Context(), orderID)).Status
}

func (d *desk) exec(statement string) {
	d.t.Helper()
	_, err := d.db.ExecContext(d.t.Context(), statement)
	must(d.t, err)
}

// requireOneOrderEach holds that the ledger has exactly one live order per
// grant of one unit of A, and that counts and flows agree with them.
func (d *desk) requireOneOrderEach(grants int) {
	d.t.Helper()
	want := int64(grants)
	for what, got := range map[string]int64{
		"orders":       d.count("SELECT COUNT(*) FROM orders"),
		"live orders":  d.orders(sale.OrderPendingPayment),
		"units sold":   d.count("SELECT sold FROM items WHERE sku = 'A'"),
		"flows":        d.count("SELECT COUNT(*) FROM flows WHERE kind = 'grab'"),
		"flowed units": d.count("SELECT COALESCE(-SUM(qty_step), 0) FROM flows"),
	} {
		if got != want {
			d.t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	broken := d.count(`SELECT COUNT(*) FROM (SELECT qty_before, LAG(qty_after) OVER (PARTITION BY sku ORDER BY seq) AS earlier
		FROM flows) f WHERE earlier IS NOT NULL AND earlier <> qty_before`)
	if broken != 0 {
		d.t.Errorf("%d flows do not begin where the one before them ended", broken)
	}
}

// checksums are of all tables that grants and givebacks change.
func (d *desk) checksums() string {
	d.t.Helper()
	rows, err := d.db.QueryContext(d.t.Context(),
		"CHECKSUM TABLE sales, items, orders, flows, givebacks, progress, dead_letters")
	must(d.t, err)
	defer rows.Close()
	var all string
	for rows.Next() {
		var table string
		var sum sql.NullInt64
		must(d.t, rows.Scan(&table, &sum))
		all += fmt.Sprintln(table[len(table)-min(len(table), 12):], sum)
	}
	must(d.t, rows.Err())
	return all
}

// returns remembers the givebacks that it was asked to return.
type returns struct {
	mu  sync.Mutex
	all []sale.Giveback
	err error
}

func (r *returns) Return(_ context.Context, g sale.Giveback) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, g)
	return r.err
}

func (r *returns) ReturnAll(_ context.Context, all []sale.Giveback) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, all...)
	return r.err
}
