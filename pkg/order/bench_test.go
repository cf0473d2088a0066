package order_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
)

const (
	benchGrants = 30_000
	benchBatch  = 500
	benchTx     = 1000
	benchLoops  = 2
)

// BenchmarkWorkerAgainstBareInserts measures a worker that brings grants from a
// real stream into the ledger, and, in the same run and on the same server, bare
// bulk inserts of the very rows that it wrote: as many rows per transaction, as
// many connections, into copies of the tables. ratio is the first over the second.
func BenchmarkWorkerAgainstBareInserts(b *testing.B) {
	var worker, bare time.Duration
	grants := 0
	for range b.N {
		d := openDeskOn(b, harness.SharedMariaDB(b), benchGrants)
		for i := range benchGrants / benchBatch {
			d.publish(d.crowd(fmt.Sprint("batch-", i), benchBatch)...)
		}
		begin := time.Now()
		stop := d.work(order.WorkerConfig{Loops: benchLoops, GrantsPerTx: benchTx})
		d.awaitProgress(d.lastSeq())
		worker += time.Since(begin)
		stop()
		bare += d.bareInserts(b)
		grants += benchGrants
	}
	perSecond := func(took time.Duration) float64 { return float64(grants) / took.Seconds() }
	b.ReportMetric(perSecond(worker), "grants/s")
	b.ReportMetric(perSecond(bare), "bare-grants/s")
	b.ReportMetric(perSecond(worker)/perSecond(bare), "ratio")
	b.ReportMetric(0, "ns/op")
}

// bareInserts copies the rows of orders and flows into tables of their own and
// returns how long the inserts took.
func (d *desk) bareInserts(b *testing.B) time.Duration {
	b.Helper()
	ctx := b.Context()
	type rows struct {
		into    string
		columns int
		values  []any
	}
	var tables []rows
	for table, columns := range map[string]string{
		"orders": "id, sale_id, user_id, idempotency_key, ip, status, items, generation, created_at, expires_at, updated_at",
		"flows":  "sale_id, sku, kind, ref, order_id, user_id, qty_before, qty_step, qty_after, reason, actor, at",
	} {
		d.exec("CREATE TABLE bare_" + table + " LIKE " + table)
		n := strings.Count(columns, ",") + 1
		tables = append(tables, rows{
			into: "INSERT INTO bare_" + table + " (" + columns + ") VALUES ", columns: n, values: d.read(table, columns, n),
		})
	}
	db := get[*sql.DB](b)(sql.Open("mysql", d.dsn+"&interpolateParams=true&maxAllowedPacket=0"))
	defer db.Close()

	begin := time.Now()
	var group errgroup.Group
	group.SetLimit(benchLoops)
	for first := 0; first < benchGrants; first += benchTx {
		group.Go(func() error {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			for _, t := range tables {
				one := "(" + strings.TrimSuffix(strings.Repeat("?,", t.columns), ",") + "),"
				statement := t.into + strings.TrimSuffix(strings.Repeat(one, benchTx), ",")
				if _, err := tx.ExecContext(ctx, statement, t.values[first*t.columns:(first+benchTx)*t.columns]...); err != nil {
					return err
				}
			}
			return tx.Commit()
		})
	}
	must(b, group.Wait())
	took := time.Since(begin)
	if n := d.count("SELECT COUNT(*) FROM bare_orders"); n != benchGrants {
		b.Fatalf("%d rows copied, want %d", n, benchGrants)
	}
	return took
}

// read returns the values of all rows of a table, one after the other.
func (d *desk) read(table, columns string, n int) []any {
	d.t.Helper()
	found, err := d.db.QueryContext(d.t.Context(), "SELECT "+columns+" FROM "+table)
	must(d.t, err)
	defer found.Close()
	var all []any
	for found.Next() {
		row := make([]any, n)
		into := make([]any, n)
		for i := range row {
			into[i] = &row[i]
		}
		must(d.t, found.Scan(into...))
		all = append(all, row...)
	}
	must(d.t, found.Err())
	return all
}
