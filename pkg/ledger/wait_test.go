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
)

func TestWhatIsBuriedWhileItWaitsForItsItemsIsNotRecorded(t *testing.T) {
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	d := desk{open(t, ledger.Config{DSN: dsn}), openRaw(t, "mysql", dsn), false}
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
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	d := desk{open(t, ledger.Config{DSN: dsn, LockWait: 2 * time.Second}), openRaw(t, "mysql", dsn), false}
	createSale(t, d, "s")
	createSale(t, d, "other")
	record(t, d, batchOf(1, grab("other", "cat", "1", "A", 1)))
	holder := d.holdItems(t, "s")
	waiting := grab("s", "ann", "1", "A", 1)
	recorded := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := d.Record(context.WithoutCancel(t.Context()), batchOf(2, waiting))
		recorded <- err
	}()
	harness.Eventually(t, 10*time.Second, "the order is written", func() (bool, string) {
		n := d.uncommitted(t, "SELECT COUNT(*) FROM orders")
		return n == 2, fmt.Sprint(n)
	})

	soon, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // less than LockWait
	defer cancel()
	if _, err := d.Pay(soon, waiting.OrderID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("pay an order that is not written yet: %v", err)
	}
	told, err := d.Events(soon, 10)
	must(t, err)
	equal(t, "events that are told", len(told), 1)
	_, err = d.SettleEvents(soon, told)
	must(t, err)

	harness.Eventually(t, 10*time.Second, "the order has waited for longer than one statement does", func() (bool, string) {
		return time.Since(began) > 4500*time.Millisecond, ""
	})
	equal(t, "orders written, the waiting one too", d.uncommitted(t, "SELECT COUNT(*) FROM orders"), 2)
	must(t, holder.Rollback())
	must(t, <-recorded)
	equal(t, "sold", item(t, d, "s", "A").Sold, 1)
	sound(t, d, "s")
}

func TestATransactionWhoseTimeIsUpIsToldSo(t *testing.T) {
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	d := desk{open(t, ledger.Config{DSN: dsn, LockWait: time.Second}), openRaw(t, "mysql", dsn), false}
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

// uncommitted is what a query counts when it sees what others have not committed yet.
func (d desk) uncommitted(t testing.TB, query string) (n int64) {
	t.Helper()
	tx, err := d.raw.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	must(t, err)
	must(t, tx.QueryRowContext(t.Context(), query).Scan(&n))
	must(t, tx.Commit())
	return n
}
