// Package ledger keeps what Doorbuster has promised: sales, orders, the stock
// log, and how far the stream is written. It runs on MySQL and MariaDB, and on
// SQLite for the embedded default; schema.sql is the truth about the tables.
//
// Every change is one transaction at READ COMMITTED. A deadlock, a lock that
// took too long, a lost connection or a duplicate key begins the whole
// transaction again, so every change is written to be repeated: what was
// committed without our hearing of it is found and left alone.
//
// Rows are locked in one order, everywhere:
//
//	sales < items (by sale, SKU) < dead_letters < orders (by id) < counters (by key) < flows < givebacks < progress
//	< deliveries
//
// A new order is inserted before its items are locked. Until it is committed its row can
// be met by who inserts the same order, whom the key makes begin again (three at once
// may deadlock when the first gives up), and by who locks it by its id: therefore
// orders are read without a lock first.
// Events are inserted by whom they tell of and deleted by who has published them;
// nobody waits for their rows.
//
// The lock on its items makes a transaction the only writer of these SKUs: what
// it reads of their orders and flows under it stays true until it commits, and their
// flows chain without gaps.
package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// PageMax is the most rows one page of a list holds.
const PageMax = 1000

// Config says where the ledger is, and its bounds. Exactly one of DSN and
// SQLite is given; any other zero field takes its default.
type Config struct {
	// DSN is of a MySQL or MariaDB: user:password@tcp(host:port)/database.
	DSN string
	// SQLite is the path of a database file, made when missing. For development.
	SQLite string
	// MaxOpen bounds the connections, 1 to 1000. Default 16.
	MaxOpen int
	// ConnLifetime is how long a connection is used, so that a new server
	// behind the same name is found. Default 5m.
	ConnLifetime time.Duration
	// DialTimeout bounds connecting. Default 5s.
	DialTimeout time.Duration
	// Timeout bounds sending a statement and waiting for its answer. Default 30s.
	Timeout time.Duration
	// AuditTimeout is the same for a statement of Verify or of a snapshot, which
	// reads all orders of a sale. Default 10m.
	AuditTimeout time.Duration
	// LockWait is how long a statement waits for a row that another holds, in whole
	// seconds; the transaction is then tried again. Default 2s. A caller whose time is up
	// before leaves behind a transaction that holds its rows until LockWait is over: keep
	// it well below the time of a call.
	LockWait time.Duration
	// Attempts is how often a transaction is tried, 1 to 100. Default 8.
	Attempts int
	// RetryMin and RetryMax bound the pause between two attempts: it doubles,
	// and half of it is random. Defaults 5ms and 1s.
	RetryMin, RetryMax time.Duration
	// NoEvents writes no events: nobody is told what happens to orders, and the
	// shop's system is not called for any.
	NoEvents bool
	// InsertRows is the most rows of one INSERT, and the most values of one
	// look-up, 1 to 2000. Default 500, for SQLite 50: its driver looks for each value
	// among all those of the statement.
	InsertRows int
}

func (c Config) withDefaults() Config {
	setDefault(&c.MaxOpen, 16)
	setDefault(&c.ConnLifetime, 5*time.Minute)
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.Timeout, 30*time.Second)
	setDefault(&c.AuditTimeout, 10*time.Minute)
	setDefault(&c.LockWait, 2*time.Second)
	setDefault(&c.Attempts, 8)
	setDefault(&c.RetryMin, 5*time.Millisecond)
	setDefault(&c.RetryMax, time.Second)
	if c.SQLite != "" {
		setDefault(&c.InsertRows, 50)
	}
	setDefault(&c.InsertRows, 500)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	switch {
	case (c.DSN == "") == (c.SQLite == ""):
		return errors.New("ledger: give either a DSN or a path for SQLite")
	case c.MaxOpen < 1 || c.MaxOpen > 1000:
		return errors.New("ledger: MaxOpen must be 1 to 1000")
	case c.LockWait < time.Second || c.LockWait > time.Hour:
		return errors.New("ledger: LockWait must be 1s to 1h")
	case c.Attempts < 1 || c.Attempts > 100:
		return errors.New("ledger: Attempts must be 1 to 100")
	case c.RetryMin < time.Millisecond || c.RetryMax < c.RetryMin || c.RetryMax > time.Minute:
		return errors.New("ledger: RetryMin must be at least 1ms, RetryMax from there to 1m")
	case c.InsertRows < 1 || c.InsertRows > 2000:
		return errors.New("ledger: InsertRows must be 1 to 2000")
	}
	return nil
}

// Ledger is safe for concurrent use.
type Ledger struct {
	cfg   Config
	store database
	write *gorm.DB
	read  *gorm.DB // short statements
	audit *gorm.DB // long ones

	counted countedSales
}

// pools are the ways into a database; they may be one.
type pools struct{ write, read, audit gorm.Dialector }

// database is what differs between MySQL and SQLite.
type database interface {
	open() (pools, error)
	// prepare makes the database itself when it is missing, and keeps other
	// migrations out until the returned function is called.
	prepare(ctx context.Context) (done func(), err error)
	dialect
	// transient, duplicate (of a key) and permanent judge an error of the driver; see change.
	transient(err error) bool
	// waitedInVain tells the one of them that undid its statement only.
	waitedInVain(err error) bool
	duplicate(err error) bool
	permanent(err error) bool
	close() error
}

// dialect is what a database says in its own words.
type dialect interface {
	// statements are those of schema.sql, as this database understands them.
	statements(schema string) []string
	// orderLines selects the lines of the orders of the sale @sale: id, user_id,
	// status, reason, sku, quantity, returned.
	orderLines() string
	// locked is the FROM item for reading rows of a table that are to be locked.
	locked(table string) string
	// inserted is, in an upsert, the value that a column would have been inserted with.
	inserted(column string) string
	// clock is an expression for the time, in whole milliseconds since 1970 in UTC.
	clock() string
	// by is the FROM item for reading a table by one of its indexes.
	by(table, index string) string
}

// Open prepares a ledger. It does not connect to MySQL yet: Ping tells whether
// that is there, Migrate makes the tables.
func Open(_ context.Context, cfg Config) (*Ledger, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Ledger{cfg: cfg}
	if cfg.DSN != "" {
		l.store = &mysqlDatabase{cfg: cfg}
	} else {
		l.store = &sqliteDatabase{cfg: cfg}
	}
	p, err := l.store.open()
	if err != nil {
		return nil, err
	}
	for pool, dialector := range map[**gorm.DB]gorm.Dialector{&l.write: p.write, &l.read: p.read, &l.audit: p.audit} {
		if *pool, err = openGorm(dialector); err != nil {
			return nil, errors.Join(err, l.store.close())
		}
	}
	return l, nil
}

func openGorm(d gorm.Dialector) (*gorm.DB, error) {
	db, err := gorm.Open(d, &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		Logger:                 logger.Discard, // Errors are returned; statements hold users' data.
	})
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return db, nil
}

// Close gives all connections up.
func (l *Ledger) Close() error {
	if err := l.store.close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Ping asks the database for a sign of life.
func (l *Ledger) Ping(ctx context.Context) error {
	for _, db := range []*gorm.DB{l.write, l.read} {
		pool, err := db.DB()
		if err != nil {
			return fmt.Errorf("ping ledger: %w", err)
		}
		if err := pool.PingContext(ctx); err != nil {
			return fmt.Errorf("ping ledger: %w", err)
		}
	}
	return nil
}

// now is the time as the database keeps it.
func now() time.Time { return stored(time.Now()) }

func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// storedOrNull keeps a time that never comes as NULL.
func storedOrNull(t time.Time) sql.NullTime {
	return sql.NullTime{Time: stored(t), Valid: !t.IsZero()}
}
