package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestWhatIsBuriedWhileItWaitsForItsItemsIsNotRecorded(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t, ledger.Config{})
	createSale(t, d, "s")
	unlucky, other := grab("s", "ann", "1", "A", 1), grab("s", "ben", "1", "A", 1)
	burial := d.holdItems(t, "s")
	recorded := make(chan ledger.Result, 1)
	go func() {
		r, err := d.Record(context.WithoutCancel(t.Context()), batchOf(1, unlucky, other))
		if err != nil {
			t.Error(err)
		}
		recorded <- r
	}()
	harness.Eventually(t, 10*time.Second, "the orders are written before the items are free", func() (bool, string) {
		n := d.uncommitted(t, "SELECT COUNT(*) FROM orders")
		return n == 2, fmt.Sprint(n)
	})
	_, err := burial.ExecContext(t.Context(), `INSERT INTO dead_letters (sale_id, order_id, stream_id, seq, generation, reason, attempts, record, status, at, updated_at)
		VALUES ('s', ?, 1, 1, 3, '', 1, '', 'open', NOW(), NOW())`, unlucky.OrderID)
	must(t, err)
	must(t, burial.Commit())

	r := <-recorded
	equal(t, "orders and duplicates", fmt.Sprint(r.Orders, r.Duplicates), "1 1")
	equal(t, "orders of what is buried", d.count(t, "SELECT COUNT(*) FROM orders WHERE id = ?", unlucky.OrderID), 0)
	equal(t, "events of what is buried", d.count(t, "SELECT COUNT(*) FROM events WHERE order_id = ?", unlucky.OrderID), 0)
	equal(t, "orders of the other", d.count(t, "SELECT COUNT(*) FROM orders WHERE id = ?", other.OrderID), 1)
}

// Whoever waits for an item with an order in hand keeps nobody waiting but those who
// want the same item.
func TestAnOrderThatWaitsForItsItemKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t, ledger.Config{LockWait: time.Second, Attempts: 20})
	createSale(t, d, "s")
	createSale(t, d, "other")
	// So many that the server reads the whole table to delete their events.
	others := make([]sale.Grant, 30)
	for i := range others {
		others[i] = grab("other", fmt.Sprint("user", i), "1", "C", 1)
	}
	record(t, d, batchOf(1, others...))
	holder := d.holdItems(t, "s")
	waiting := grab("s", "ann", "1", "A", 1)
	recorded := make(chan error, 1)
	go func() {
		_, err := d.Record(context.WithoutCancel(t.Context()), batchOf(100, waiting))
		recorded <- err
	}()
	var turn int64
	harness.Eventually(t, 10*time.Second, "the order is written and waits", func() (bool, string) {
		n := d.uncommitted(t, "SELECT COUNT(*) FROM orders WHERE sale_id = 's'")
		turn = d.lockStatement(t)
		return n == 1 && turn != 0, fmt.Sprint(n)
	})
	const whenWritten = "SELECT CAST(UNIX_TIMESTAMP(updated_at) * 1000 AS SIGNED) FROM orders WHERE sale_id = 's'"
	written := d.uncommitted(t, whenWritten)

	// Less than the order waits: LockWait as often as Attempts says.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.Pay(soon, waiting.OrderID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("pay an order that is not written yet: %v", err)
	}
	told, err := d.Events(soon, 100)
	must(t, err)
	equal(t, "events that are told", len(told), len(others))
	_, err = d.SettleEvents(soon, told)
	must(t, err)

	harness.Eventually(t, 10*time.Second, "the order waits for its turn again", func() (bool, string) {
		now := d.lockStatement(t)
		return now != 0 && now != turn, fmt.Sprint(now)
	})
	equal(t, "when the order was written", d.uncommitted(t, whenWritten), written)
	must(t, holder.Rollback())
	must(t, <-recorded)
	equal(t, "sold", item(t, d, "s", "A").Sold, 1)
	sound(t, d, "s")
}

func TestATransactionWhoseTimeIsUpIsToldSo(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t, ledger.Config{LockWait: time.Second})
	createSale(t, d, "s")
	d.holdItems(t, "s")
	for _, patience := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 1005 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := d.Record(ctx, batchOf(1, grab("s", "ann", "1", "A", 1)))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !d.Transient(err) || d.Permanent(err) {
			t.Errorf("after %s: %v is not called transient, or permanent", patience, err)
		}
	}
}

// holdItems locks the items of a sale until the transaction or the test ends.
func (d desk) holdItems(t testing.TB, saleID string) *sql.Tx {
	t.Helper()
	tx, err := d.raw.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	var items int
	must(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM items FORCE INDEX (PRIMARY) WHERE sale_id = ? FOR UPDATE", saleID).Scan(&items))
	return tx
}

// lockStatement is the number of the statement of another that locks items, or waits to; 0
// when there is none. The server numbers each one anew.
func (d desk) lockStatement(t testing.TB) int64 {
	t.Helper()
	return d.count(t, `SELECT COALESCE(MAX(query_id), 0) FROM information_schema.processlist
		WHERE db = DATABASE() AND info LIKE 'SELECT % FROM items % FOR UPDATE'`)
}

// uncommitted is what a query counts when it sees what others have not committed yet.
func (d desk) uncommitted(t testing.TB, query string) (n int64) {
	t.Helper()
	tx, err := d.raw.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	must(t, err)
	must(t, tx.QueryRowContext(t.Context(), query).Scan(&n))
	must(t, tx.Commit())
	return n
}
