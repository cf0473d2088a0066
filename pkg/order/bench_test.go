package order_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
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
// Each limit of a sale adds a line of the log to every grant, and a user's daily limit a
// counter of its own.
func BenchmarkWorkerAgainstBareInserts(b *testing.B) {
	b.Run("limits=0", func(b *testing.B) { benchWorker(b) })
	b.Run("limits=2", func(b *testing.B) {
		benchWorker(b, sale.Limit{Scope: sale.ScopeUser, Window: sale.WindowDay, Max: 5}, sale.Limit{Scope: sale.ScopeSale, Window: sale.WindowDay, Max: benchGrants})
	})
}

func benchWorker(b *testing.B, limits ...sale.Limit) {
	b.Helper()
	var worker, bare time.Duration
	grants := 0
	for range b.N {
		d := openDeskOn(b, harness.SharedMariaDB(b), benchGrants)
		d.sale = get[sale.Sale](b)(d.ledger.EditSale(b.Context(), d.sale.ID, ledger.Cause{}, func(s *sale.Sale) error {
			s.Limits = limits
			return nil
		}))
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

// bareRows are rows of a table, to be inserted into a copy of it.
type bareRows struct {
	into    string
	columns int
	values  []any
}

// bareRows makes an empty copy of a table, and reads rows for it.
func (d *desk) bareRows(table, columns, where string) bareRows {
	d.t.Helper()
	d.exec("CREATE TABLE bare_" + table + " LIKE " + table)
	r := bareRows{into: "INSERT INTO bare_" + table + " (" + columns + ") VALUES ", columns: strings.Count(columns, ",") + 1}
	found, err := d.db.QueryContext(d.t.Context(), "SELECT "+columns+" FROM "+table+" WHERE "+where)
	must(d.t, err)
	defer found.Close()
	for found.Next() {
		row := make([]any, r.columns)
		into := make([]any, r.columns)
		for i := range row {
			into[i] = &row[i]
		}
		must(d.t, found.Scan(into...))
		r.values = append(r.values, row...)
	}
	must(d.t, found.Err())
	return r
}

// insert inserts n of the rows in one statement.
func (r *bareRows) insert(ctx context.Context, tx *sql.Tx, first, n int) error {
	one := "(" + strings.TrimSuffix(strings.Repeat("?,", r.columns), ",") + "),"
	statement := r.into + strings.TrimSuffix(strings.Repeat(one, n), ",")
	_, err := tx.ExecContext(ctx, statement, r.values[first*r.columns:(first+n)*r.columns]...)
	return err
}

// Columns that the database does not fill in by itself.
const (
	orderColumns    = "id, sale_id, user_id, idempotency_key, ip, status, items, generation, created_at, expires_at, reason, updated_at"
	flowColumns     = "sale_id, sku, counter, kind, ref, order_id, user_id, qty_before, qty_step, qty_after, reason, actor, at"
	eventColumns    = "sale_id, order_id, kind, body, at"
	counterColumns  = "sale_id, limit_name, period, subject, used"
	givebackColumns = "sale_id, id, order_id, user_id, items, units, counts, decided_at"
)

// inBare runs one transaction per so many of n rows, some at a time, on connections
// that send a statement in one go, and returns how long that took.
func (d *desk) inBare(n, each int, do func(ctx context.Context, tx *sql.Tx, first int) error) time.Duration {
	d.t.Helper()
	db := get[*sql.DB](d.t)(sql.Open("mysql", d.dsn+"&interpolateParams=true&maxAllowedPacket=0"))
	defer db.Close()
	begin := time.Now()
	group, ctx := errgroup.WithContext(d.t.Context())
	group.SetLimit(benchLoops)
	for first := 0; first < n; first += each {
		group.Go(func() error {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			if err := do(ctx, tx, first); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
	}
	must(d.t, group.Wait())
	return time.Since(begin)
}

// bareInserts copies the rows that a worker wrote into tables of their own and
// returns how long the inserts took.
func (d *desk) bareInserts(b *testing.B) time.Duration {
	b.Helper()
	tables := []bareRows{
		d.bareRows("orders", orderColumns, "TRUE"), d.bareRows("flows", flowColumns, "TRUE"), d.bareRows("events", eventColumns, "TRUE"),
		d.bareRows("counters", counterColumns, "subject <> ''"),
	}
	took := d.inBare(benchGrants, benchTx, func(ctx context.Context, tx *sql.Tx, first int) error {
		for _, t := range tables {
			perGrant := len(t.values) / t.columns / benchGrants
			if perGrant == 0 {
				continue
			}
			if err := t.insert(ctx, tx, first*perGrant, benchTx*perGrant); err != nil {
				return err
			}
		}
		return nil
	})
	if n := d.count("SELECT COUNT(*) FROM bare_orders"); n != benchGrants {
		b.Fatalf("%d rows copied, want %d", n, benchGrants)
	}
	return took
}
