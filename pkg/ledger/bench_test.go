package ledger_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/go-sql-driver/mysql"
)

const benchGrants = 1000

// BenchmarkRecordAgainstBareInserts alternates between a Record of 1000 grants
// and a transaction that merely inserts the same orders and flows, on a MariaDB
// that flushes every commit. One iteration is both; "ratio" is the speed of Record as a
// part of the bare inserts' and should be above 0.5.
func BenchmarkRecordAgainstBareInserts(b *testing.B) {
	for _, skus := range []int{1, 20} {
		b.Run(fmt.Sprintf("skus=%d", skus), func(b *testing.B) {
			l := desk{Ledger: open(b, ledger.Config{DSN: harness.SharedMariaDB(b).NewDatabase(b), NoEvents: true})}
			createBenchSale(b, l, skus)
			dsn := harness.SharedMariaDB(b).NewDatabase(b)
			createBenchSale(b, desk{Ledger: open(b, ledger.Config{DSN: dsn})}, skus)
			config, err := mysql.ParseDSN(dsn)
			must(b, err)
			config.InterpolateParams = true
			bare, err := sql.Open("mysql", config.FormatDSN())
			must(b, err)
			defer bare.Close()

			var recording, inserting time.Duration
			n := 0
			for b.Loop() {
				grants := benchBatch(n, skus)
				begin := time.Now()
				r := record(b, l, batchOf(uint64(n+1), grants...))
				recording += time.Since(begin)
				equal(b, "orders", r.Orders, benchGrants)
				begin = time.Now()
				must(b, bareInserts(b.Context(), bare, grants))
				inserting += time.Since(begin)
				n += benchGrants
			}
			b.ReportMetric(float64(n)/recording.Seconds(), "recorded/s")
			b.ReportMetric(float64(n)/inserting.Seconds(), "bare/s")
			b.ReportMetric(float64(inserting)/float64(recording), "ratio")
		})
	}
}

func createBenchSale(b *testing.B, l desk, skus int) {
	b.Helper()
	s := draft("bench")
	s.PerUserLimit, s.Items = 0, nil
	for i := range skus {
		s.Items = append(s.Items, sale.Item{SKU: fmt.Sprintf("SKU-%03d", i), Stock: sale.MaxStock, PriceCents: 100})
	}
	_, err := l.CreateSale(b.Context(), s)
	must(b, err)
}

func benchBatch(from, skus int) []sale.Grant {
	grants := make([]sale.Grant, benchGrants)
	for i := range grants {
		grants[i] = grab("bench", fmt.Sprintf("user-%09d", from+i), "key-0123456789", fmt.Sprintf("SKU-%03d", i%skus), 1)
	}
	return grants
}

// bareInserts is the least that any program must do to store these grants.
func bareInserts(ctx context.Context, db *sql.DB, grants []sale.Grant) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	const rows = 500
	for len(grants) > 0 {
		chunk := grants[:min(rows, len(grants))]
		grants = grants[len(chunk):]
		var orders, flows []any
		for _, g := range chunk {
			items, err := json.Marshal([]sale.OrderLine{{Line: g.Lines[0]}})
			if err != nil {
				return err
			}
			orders = append(orders, g.OrderID, "bench", g.User, g.Key, g.IP, "pending_payment", string(items), 3, g.At, g.ExpiresAt, "", g.At)
			flows = append(flows, "bench", g.Lines[0].SKU, "", "grab", g.OrderID, g.OrderID, g.User, 1000, -1, 999, "", "", g.At)
		}
		into := "INSERT INTO orders (id, sale_id, user_id, idempotency_key, ip, status, items, generation, created_at, expires_at, reason, updated_at) VALUES "
		if err := bareInsert(ctx, tx, into, 12, orders); err != nil {
			return err
		}
		into = "INSERT INTO flows (sale_id, sku, counter, kind, ref, order_id, user_id, qty_before, qty_step, qty_after, reason, actor, at) VALUES "
		if err := bareInsert(ctx, tx, into, 13, flows); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func bareInsert(ctx context.Context, tx *sql.Tx, into string, columns int, values []any) error {
	row := "(" + strings.Repeat("?,", columns-1) + "?),"
	_, err := tx.ExecContext(ctx, into+strings.TrimSuffix(strings.Repeat(row, len(values)/columns), ","), values...)
	return err
}

const snapshotOrders = 200_000

// BenchmarkSnapshot reads a sale of 200,000 orders as the reconciler does, and verifies it.
func BenchmarkSnapshot(b *testing.B) {
	d := desk{Ledger: open(b, ledger.Config{DSN: harness.SharedMariaDB(b).NewDatabase(b)})}
	createBenchSale(b, d, 20)
	for n := 0; n < snapshotOrders; n += benchGrants {
		record(b, d, batchOf(uint64(n+1), benchBatch(n, 20)...))
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			orders := 0
			must(b, d.ReadSnapshot(b.Context(), "bench", stream, 1, func(s *ledger.Snapshot) error {
				return s.Orders(func(*sale.Order) error { orders++; return nil })
			}))
			equal(b, "orders", orders, snapshotOrders)
		}
		b.ReportMetric(float64(snapshotOrders*b.N)/b.Elapsed().Seconds(), "orders/s")
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			sound(b, d, "bench")
		}
		b.ReportMetric(float64(snapshotOrders*b.N)/b.Elapsed().Seconds(), "orders/s")
	})
}
