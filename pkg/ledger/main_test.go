package ledger_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/glebarez/sqlite"
)

func TestMain(m *testing.M) { harness.Main(m) }

// desk is an empty, migrated ledger and a way past it.
type desk struct {
	*ledger.Ledger
	raw    *sql.DB
	sqlite bool
}

// onEach runs a promise on every database the ledger supports, side by side: MariaDB waits
// for the disk most of the time, SQLite hardly ever. Code behind the call runs before both.
func onEach(t *testing.T, promise func(t *testing.T, d desk)) {
	t.Helper()
	onEachWith(t, ledger.Config{}, promise)
}

// onEachWith is onEach with other bounds.
func onEachWith(t *testing.T, cfg ledger.Config, promise func(t *testing.T, d desk)) {
	t.Helper()
	for name, on := range map[string]func(testing.TB, ledger.Config) desk{"MariaDB": onMariaDB, "SQLite": onSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			promise(t, on(t, cfg))
		})
	}
}

// onMariaDB is an empty ledger in a database of its own.
func onMariaDB(t testing.TB, cfg ledger.Config) desk {
	t.Helper()
	cfg.DSN = harness.SharedMariaDB(t).NewDatabase(t)
	return desk{open(t, cfg), openRaw(t, "mysql", cfg.DSN), false}
}

// onSQLite is an empty ledger in a file of its own.
func onSQLite(t testing.TB, cfg ledger.Config) desk {
	t.Helper()
	cfg.SQLite = migratedFile(t)
	return desk{open(t, cfg), openRaw(t, sqlite.DriverName, cfg.SQLite), true}
}

// migrated is the file of an empty ledger. Making its tables takes a third of the time of
// most tests here; copying them takes none.
var migrated struct {
	sync.Mutex
	file []byte
}

// migratedFile returns the path of a copy of migrated for this test.
func migratedFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	migrated.Lock()
	defer migrated.Unlock()
	if migrated.file != nil {
		must(t, os.WriteFile(path, migrated.file, 0o600))
		return path
	}
	l, err := ledger.Open(t.Context(), ledger.Config{SQLite: path})
	must(t, err)
	must(t, errors.Join(l.Migrate(t.Context()), l.Close())) // closed, it is one file
	migrated.file, err = os.ReadFile(path)
	must(t, err)
	return path
}

// crowd is how often something is done where many do it at once: n times, and a fifth of that
// on SQLite. There one writer holds everything, the others stand in line, and more of them show
// nothing new; with the race detector each takes ten times as long as on MariaDB.
func (d desk) crowd(n int) int {
	if d.sqlite {
		return n / 5
	}
	return n
}

func openRaw(t testing.TB, driver, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, address)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// count is the one number that a query finds.
func (d desk) count(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	var n int64
	must(t, d.raw.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// exec changes rows behind the ledger's back.
func (d desk) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := d.raw.ExecContext(t.Context(), statement, args...)
	must(t, err)
}

func open(t testing.TB, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	must(t, l.Migrate(t.Context()))
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

var start = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// draft is a sale of 10 of A and 5 of B, and of C without bound.
func draft(id string) sale.Sale {
	return sale.Sale{
		ID: id, Name: "Größter Ausverkauf 🎉", Status: sale.StatusDraft,
		StartsAt: start, EndsAt: start.Add(time.Hour), PaymentWindow: sale.Duration(20 * time.Minute),
		PerUserLimit: 4, Timezone: "Europe/Berlin",
		Items: []sale.Item{{SKU: "B", Stock: 5, PriceCents: 200}, {SKU: "A", Stock: 10, PriceCents: 100}, {SKU: "C", Stock: sale.Unlimited}},
	}
}

func createSale(t testing.TB, d desk, id string) {
	t.Helper()
	_, err := d.CreateSale(t.Context(), draft(id))
	must(t, err)
}

// grab is a grant of some units of one SKU.
func grab(saleID, user, key, sku string, quantity int64) sale.Grant {
	return sale.Grant{
		Kind: sale.GrantGrab, OrderID: sale.OrderID(saleID, user, key), User: user, Key: key, IP: "203.0.113.9",
		At: start.Add(1234567 * time.Microsecond).Truncate(time.Millisecond), ExpiresAt: start.Add(20 * time.Minute),
		Lines: []sale.Line{{SKU: sku, Quantity: quantity, PriceCents: 100}},
	}
}

// reduction is an operator's grant that takes stock away.
func reduction(saleID, key, sku string, quantity int64) sale.Grant {
	return sale.Grant{
		Kind: sale.GrantAdjust, OrderID: sale.OrderID(saleID, "ops", key), Key: sale.AdjustmentNote("ops", "broken units"),
		At: start, Lines: []sale.Line{{SKU: sku, Quantity: quantity}},
	}
}

const stream = 1_700_000_000_000_000_000

// batchOf puts each grant into a message of its own, from seq on, and completes them.
func batchOf(seq uint64, grants ...sale.Grant) ledger.Batch {
	b := ledger.Batch{StreamID: stream}
	for i, g := range grants {
		saleID, _, _ := sale.ParseOrderID(g.OrderID)
		b.Messages = append(b.Messages, ledger.Message{
			Seq: seq + uint64(i), SaleID: saleID,
			Batch: sale.Batch{BatchHead: sale.BatchHead{Generation: 3, Process: "p"}, Grants: []sale.Grant{g}},
		})
	}
	if len(grants) > 0 {
		b.Done = []ledger.Range{{First: seq, Last: seq + uint64(len(grants)) - 1}}
	}
	return b
}

func record(t testing.TB, d desk, b ledger.Batch) ledger.Result {
	t.Helper()
	r, err := d.Record(t.Context(), b)
	must(t, err)
	return r
}

// sound fails the test unless every guarantee holds in the sale.
func sound(t testing.TB, d desk, saleID string) {
	t.Helper()
	checks, err := d.Verify(t.Context(), saleID)
	must(t, err)
	if len(checks) == 0 {
		t.Fatal("nothing was verified")
	}
	for _, c := range checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
}

func item(t testing.TB, d desk, saleID, sku string) ledger.ItemTotals {
	t.Helper()
	var items []ledger.ItemTotals
	must(t, d.ReadSnapshot(t.Context(), saleID, stream, 1, func(s *ledger.Snapshot) error {
		items = s.Items()
		return nil
	}))
	for _, it := range items {
		if it.SKU == sku {
			return it
		}
	}
	t.Fatalf("sale %s has no item %s", saleID, sku)
	return ledger.ItemTotals{}
}
