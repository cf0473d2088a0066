package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	driver "github.com/glebarez/go-sqlite"
	"github.com/glebarez/sqlite"
)

// Result codes of SQLite; see https://www.sqlite.org/rescode.html. The lowest
// byte is the primary code.
const (
	sqliteBusy              = 5
	sqliteLocked            = 6
	sqliteTooBig            = 18
	sqliteMismatch          = 20
	sqliteConstraintCheck   = 275
	sqliteConstraintNotNull = 1299
	sqliteConstraintPrimary = 1555
	sqliteConstraintUnique  = 2067
	sqliteConstraintRowID   = 2579
	sqlitePrimary           = 0xff
)

// sqliteDatabase writes through one connection, which keeps writers from
// refusing each other; readers have their own and never wait for it (WAL).
type sqliteDatabase struct {
	cfg         Config
	write, read *sql.DB
}

func (s *sqliteDatabase) open() (pools, error) {
	path, err := filepath.Abs(s.cfg.SQLite)
	if err != nil {
		return pools{}, fmt.Errorf("open ledger: %w", err)
	}
	pragmas := []string{"journal_mode(WAL)", "synchronous(FULL)", fmt.Sprintf("busy_timeout(%d)", s.cfg.LockWait.Milliseconds())}
	if s.write, err = openSQLite(path, url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}); err != nil {
		return pools{}, err
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = openSQLite(path, url.Values{"_pragma": append(pragmas, "query_only(1)")}); err != nil {
		return pools{}, errors.Join(err, s.close())
	}
	s.read.SetMaxOpenConns(s.cfg.MaxOpen)
	// The first writer makes the file and its journal mode.
	if err := s.write.PingContext(context.Background()); err != nil { // a local file: there is nothing to wait for
		return pools{}, errors.Join(fmt.Errorf("open ledger %s: %w", path, err), s.close())
	}
	reader := &sqlite.Dialector{Conn: s.read}
	return pools{write: &sqlite.Dialector{Conn: s.write}, read: reader, audit: reader}, nil
}

func openSQLite(path string, settings url.Values) (*sql.DB, error) {
	address := url.URL{Scheme: "file", Path: path, RawQuery: settings.Encode()}
	pool, err := sql.Open(sqlite.DriverName, address.String())
	if err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	return pool, nil
}

// prepare has nothing to keep out: the file belongs to one process.
func (s *sqliteDatabase) prepare(context.Context) (done func(), err error) {
	return func() {}, nil
}

func (s *sqliteDatabase) statements(schema string) []string {
	var all []string
	for _, statement := range splitStatements(schema) {
		all = append(all, sqliteStatements(statement)...)
	}
	return all
}

func (s *sqliteDatabase) orderLines() string {
	return `SELECT o.id, o.user_id, o.status, o.reason, j.value ->> '$.sku' AS sku, j.value ->> '$.quantity' AS quantity,
		j.value ->> '$.returned' AS returned FROM orders o CROSS JOIN json_each(o.items) j WHERE o.sale_id = @sale`
}

func (s *sqliteDatabase) locked(table string) string { return table }

func (s *sqliteDatabase) inserted(column string) string { return "excluded." + column }

func (s *sqliteDatabase) clock() string {
	return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)" // from days since noon of the first one
}

func (s *sqliteDatabase) by(table, _ string) string { return table }

func (s *sqliteDatabase) transient(err error) bool {
	primary := sqliteCode(err) & sqlitePrimary
	return primary == sqliteBusy || primary == sqliteLocked
}

func (s *sqliteDatabase) waitedInVain(error) bool { return false } // who writes has locked everything

func (s *sqliteDatabase) duplicate(err error) bool {
	switch sqliteCode(err) {
	case sqliteConstraintPrimary, sqliteConstraintUnique, sqliteConstraintRowID:
		return true
	}
	return false
}

func (s *sqliteDatabase) permanent(err error) bool {
	switch sqliteCode(err) {
	case sqliteTooBig, sqliteMismatch, sqliteConstraintCheck, sqliteConstraintNotNull:
		return true
	}
	return false
}

// sqliteCode is 0 for what is no error of SQLite.
func sqliteCode(err error) int {
	var failed *driver.Error
	if !errors.As(err, &failed) {
		return 0
	}
	return failed.Code()
}

func (s *sqliteDatabase) close() error { return closePools(s.read, s.write) }
