package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// storm is many grants, each of one or two SKUs in any order, as messages of ten.
func storm(saleID string, random *rand.Rand, messages int) []ledger.Message {
	skus := []string{"A", "B", "C", "D"}
	all := make([]ledger.Message, messages)
	for i := range all {
		m := ledger.Message{Seq: uint64(i + 1), SaleID: saleID}
		for j := range 10 {
			g := grab(saleID, fmt.Sprintf("u%d-%d", i, j), "k", "", 1)
			for _, k := range random.Perm(len(skus))[:1+random.IntN(2)] {
				g.Lines = append(g.Lines, sale.Line{SKU: skus[k], Quantity: 1})
			}
			g.Lines = g.Lines[1:]
			m.Batch.Grants = append(m.Batch.Grants, g)
		}
		all[i] = m
	}
	return all
}

// deadlocks is how many the server has met.
func (d desk) deadlocks(t testing.TB) (n int64) {
	t.Helper()
	if d.sqlite {
		return 0
	}
	var name string
	must(t, d.raw.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n))
	return n
}

func stormSale(t testing.TB, d desk, saleID string) {
	t.Helper()
	s := draft(saleID)
	s.Items = nil
	for _, sku := range []string{"A", "B", "C", "D"} {
		s.Items = append(s.Items, sale.Item{SKU: sku, Stock: 100_000})
	}
	_, err := d.CreateSale(t.Context(), s)
	must(t, err)
}

func messageBatch(m ...ledger.Message) ledger.Batch {
	b := ledger.Batch{StreamID: stream, Messages: m}
	for _, one := range m {
		b.Done = append(b.Done, ledger.Range{First: one.Seq, Last: one.Seq})
	}
	return b
}

// Writers of the same items, and those who cancel what was just written, never
// deadlock: rows are locked in one order.
func TestRecordingAndCancellingAtOnceNeverDeadlocks(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		before := d.deadlocks(t)
		recordAndCancel(t, d, func(message, worker int) bool { return message%4 == worker })
		equal(t, "deadlocks", d.deadlocks(t)-before, 0)
	})
}

// Here each message is written by all at once. Those who wait for the same order
// may deadlock when the one they wait for gives up; the transaction begins anew.
func TestRecordingTheSameAtOnceIsRecordingItOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		recordAndCancel(t, d, func(int, int) bool { return true })
	})
}

// recordAndCancel writes the messages of two sales, each by the workers that it is for,
// while others cancel the orders.
func recordAndCancel(t *testing.T, d desk, isFor func(message, worker int) bool) {
	t.Helper()
	stormSale(t, d, "s")
	stormSale(t, d, "s2")
	seed := harness.Seed(t)
	messages := d.crowd(40)
	written := make(chan string, 10_000)
	var recorders, cancellers sync.WaitGroup
	for w := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		one, two := storm("s", rand.New(rand.NewPCG(seed, 99)), messages), storm("s2", rand.New(rand.NewPCG(seed, 98)), messages)
		recorders.Go(func() {
			for _, i := range random.Perm(len(one)) {
				if !isFor(i, w) {
					continue
				}
				_, err := d.Record(t.Context(), messageBatch(one[i], two[(i+8*w)%len(two)]))
				if err != nil {
					t.Error(err)
				}
				for _, g := range one[i].Batch.Grants[:5] {
					written <- g.OrderID
				}
			}
		})
	}
	for range 3 {
		cancellers.Go(func() {
			for id := range written {
				if _, _, err := d.Cancel(t.Context(), id, "ops", ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	recorders.Wait()
	close(written)
	cancellers.Wait()

	equal(t, "orders", d.count(t, "SELECT COUNT(*) FROM orders"), int64(2*10*messages))
	equal(t, "cancelled", d.count(t, "SELECT COUNT(*) FROM orders WHERE status = 'cancelled'"), int64(5*messages))
	equal(t, "flows that give back", d.count(t, "SELECT COUNT(DISTINCT ref) FROM flows WHERE kind = 'cancel'"), int64(5*messages))
	sound(t, d, "s")
	sound(t, d, "s2")
}

// Whatever moment the server dies at, a batch is there whole or not at all, and
// its progress with it; sending everything again makes it complete.
func TestAKilledServerHasEachBatchWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	server := harness.MariaDB(t)
	dsn := server.NewDatabase(t)
	d := desk{open(t, ledger.Config{DSN: dsn, Attempts: 2}), openRaw(t, "mysql", dsn), false}
	stormSale(t, d, "s")
	seed := harness.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	messages := storm("s", random, 300)
	for range 3 {
		// In another order each time, or the later kills would meet what is written already.
		random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		acknowledged := recordUntilItFails(t, d, messages, server.Kill, random.IntN(30))
		server.Start()

		requireWholeBatches(t, d, messages, acknowledged)
	}
	for some := range slices.Chunk(messages, 30) {
		record(t, d, messageBatch(some...))
	}
	equal(t, "orders", d.count(t, "SELECT COUNT(*) FROM orders"), int64(10*len(messages)))
	progress, err := d.Progress(t.Context(), stream)
	must(t, err)
	equal(t, "progress", progress[0], ledger.Range{First: 1, Last: uint64(len(messages))})
	sound(t, d, "s")
}

// recordUntilItFails writes messages with three writers, kills the server after some, and
// returns the sequences that were acknowledged.
func recordUntilItFails(t *testing.T, d desk, messages []ledger.Message, kill func(), after int) map[uint64]bool {
	t.Helper()
	acknowledged := map[uint64]bool{}
	var mu sync.Mutex
	var once sync.Once
	var done sync.WaitGroup
	kills := make(chan struct{})
	for w := range 3 {
		done.Go(func() {
			for i := w; i < len(messages); i += 3 {
				if _, err := d.Record(t.Context(), messageBatch(messages[i])); err != nil {
					once.Do(func() { close(kills) })
					return
				}
				mu.Lock()
				acknowledged[messages[i].Seq] = true
				enough := len(acknowledged) > after
				mu.Unlock()
				if enough {
					once.Do(func() { close(kills) })
				}
			}
		})
	}
	<-kills
	kill()
	done.Wait()
	return acknowledged
}

func requireWholeBatches(t *testing.T, d desk, messages []ledger.Message, acknowledged map[uint64]bool) {
	t.Helper()
	progress, err := d.Progress(t.Context(), stream)
	must(t, err)
	orders := map[string]bool{}
	must(t, d.ReadSnapshot(t.Context(), "s", stream, 1, func(s *ledger.Snapshot) error {
		return s.Orders(func(o *sale.Order) error { orders[o.ID] = true; return nil })
	}))
	for _, m := range messages {
		there := 0
		for _, g := range m.Batch.Grants {
			if orders[g.OrderID] {
				there++
			}
		}
		marked := false
		for _, r := range progress {
			marked = marked || r.First <= m.Seq && m.Seq <= r.Last
		}
		if there != 0 && there != len(m.Batch.Grants) || marked != (there > 0) || acknowledged[m.Seq] && there == 0 {
			t.Fatalf("message %d has %d of %d orders, progress %v, acknowledged %v",
				m.Seq, there, len(m.Batch.Grants), marked, acknowledged[m.Seq])
		}
	}
	sound(t, d, "s")
}

// Connections that break at any moment are not the caller's concern.
func TestLostConnectionsAreMadeGoodByRepeating(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t, ledger.Config{Attempts: 100, RetryMax: 5 * time.Millisecond})
	stormSale(t, d, "s")
	messages := storm("s", rand.New(rand.NewPCG(harness.Seed(t), 0)), 90)
	ctx, stop := context.WithCancel(t.Context())
	// No transaction is met more often: on a busy machine it may be slower than the ticker,
	// and would never end.
	const meetings = 3
	var met, killed atomic.Int64
	var killer sync.WaitGroup
	killer.Go(func() {
		ticker := time.NewTicker(25 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if met.Add(1) <= meetings {
					killed.Add(killOthers(ctx, d.raw))
				}
			}
		}
	})
	for i, m := range messages {
		record(t, d, messageBatch(m))
		met.Store(0)
		if i%3 == 0 {
			g := m.Batch.Grants[0]
			o, giveback, err := d.Cancel(t.Context(), g.OrderID, g.User, "")
			must(t, err)
			met.Store(0)
			equal(t, "status", o.Status, sale.OrderCancelled)
			equal(t, "giveback", giveback.OrderID, g.OrderID)
		}
	}
	stop()
	killer.Wait()
	if killed.Load() == 0 {
		t.Fatal("no connection was killed")
	}
	t.Logf("%d connections killed", killed.Load())
	equal(t, "orders", d.count(t, "SELECT COUNT(*) FROM orders"), int64(10*len(messages)))
	equal(t, "cancelled", d.count(t, "SELECT COUNT(*) FROM orders WHERE status = 'cancelled'"), int64(len(messages)/3))
	sound(t, d, "s")
}

// killOthers kills every other connection to this database and says how many.
func killOthers(ctx context.Context, raw *sql.DB) (killed int64) {
	conn, err := raw.Conn(ctx)
	if err != nil {
		return 0
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		return 0
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	if rows.Err() != nil {
		return 0
	}
	for _, id := range ids {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err == nil {
			killed++
		}
	}
	return killed
}

// What only the database itself can refuse is told from what may pass.
func TestPermanentBlamesTheRowOnly(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t, ledger.Config{Attempts: 1, LockWait: time.Second})
	createSale(t, d, "s")
	b := batchOf(1, grab("s", "a-long-name", "1", "A", 1))

	d.exec(t, "ALTER TABLE orders MODIFY user_id VARCHAR(3) NOT NULL")
	_, err := d.Record(t.Context(), b)
	if err == nil || !d.Permanent(err) {
		t.Errorf("a value too long: got %v", err)
	}
	d.exec(t, "ALTER TABLE orders MODIFY user_id VARCHAR(128) NOT NULL")

	other := d.holdItems(t, "s")
	_, err = d.Record(t.Context(), b)
	if err == nil || d.Permanent(err) {
		t.Errorf("a row that another holds: got %v", err)
	}
	must(t, other.Rollback())

	away := harness.MariaDB(t)
	dsn := away.NewDatabase(t)
	l := open(t, ledger.Config{DSN: dsn, Attempts: 2})
	away.Kill()
	_, err = l.Record(t.Context(), b)
	if err == nil || l.Permanent(err) {
		t.Errorf("a server that is away: got %v", err)
	}
	equal(t, "orders once all is well", record(t, d, b).Orders, 1)
}
