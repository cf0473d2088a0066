package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// Error numbers of MySQL and MariaDB servers.
const (
	mysqlTooManyConnections  = 1040
	mysqlUnknownDatabase     = 1049
	mysqlShutdown            = 1053
	mysqlDuplicateKey        = 1062
	mysqlLockWaitTimeout     = 1205
	mysqlDeadlock            = 1213
	mysqlReadOnly            = 1290
	mysqlQueryInterrupted    = 1317
	mysqlTransactionReadOnly = 1792
	mysqlConnectionKilled    = 1927
	mysqlGone                = 2006
	mysqlLost                = 2013
)

// mysqlRowAtFault lists the numbers that blame a row rather than the server.
var mysqlRowAtFault = map[uint16]bool{
	1048: true, // column cannot be null
	1153: true, // packet too large
	1264: true, // out of range
	1267: true, // illegal mix of collations
	1292: true, // incorrect value, such as a date after the year 9999
	1366: true, // incorrect string value
	1406: true, // data too long
	1690: true, // arithmetic out of range
	3819: true, // CHECK violated (MySQL)
	4025: true, // CHECK violated (MariaDB)
}

type mysqlDatabase struct {
	cfg         Config
	config      *mysql.Config
	pool, audit *sql.DB
}

// auditConnections bounds the audits and snapshots that run at a time.
const auditConnections = 4

func (m *mysqlDatabase) open() (pools, error) {
	var err error
	if m.config, err = mysqlConfig(m.cfg); err != nil {
		return pools{}, err
	}
	if m.pool, err = openMySQL(m.config, m.cfg.MaxOpen, m.cfg.ConnLifetime); err != nil {
		return pools{}, err
	}
	patient := m.config.Clone()
	patient.ReadTimeout = m.cfg.AuditTimeout
	if m.audit, err = openMySQL(patient, auditConnections, m.cfg.ConnLifetime); err != nil {
		return pools{}, errors.Join(err, m.close())
	}
	short := mysqlDialector(m.pool)
	return pools{write: short, read: short, audit: mysqlDialector(m.audit)}, nil
}

func mysqlDialector(pool *sql.DB) gorm.Dialector {
	return gormmysql.New(gormmysql.Config{
		Conn:                      pool,
		SkipInitializeWithVersion: true, // Do not connect yet.
		// On MariaDB the dialect would add RETURNING to inserts, and the rows
		// affected would then count duplicates.
		DisableWithReturning: true,
	})
}

// mysqlConfig adds to a DSN what the ledger relies on, whatever the DSN says.
func mysqlConfig(cfg Config) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(cfg.DSN)
	if err != nil || config.DBName == "" {
		// The driver's error may quote the password.
		return nil, errors.New("ledger: the DSN must be of the form user:password@tcp(host:port)/database")
	}
	if err := config.Apply(mysql.Charset("utf8mb4", config.Collation)); err != nil {
		return nil, fmt.Errorf("ledger: set the character set: %w", err)
	}
	config.ParseTime, config.Loc = true, time.UTC
	config.InterpolateParams = true // One round trip for a statement instead of three.
	config.ClientFoundRows = true   // A compare-and-set counts the rows it found.
	config.RejectReadOnly = true    // A demoted server is left for the new primary.
	config.MultiStatements = false
	config.Timeout = cfg.DialTimeout
	config.ReadTimeout, config.WriteTimeout = cfg.Timeout, cfg.Timeout
	config.Logger = &mysql.NopLogger{} // What it tells is in the returned errors, too.
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	config.Params["time_zone"] = "'+00:00'"
	config.Params["sql_mode"] = "'TRADITIONAL'" // What does not fit is an error, never cut.
	config.Params["innodb_lock_wait_timeout"] = strconv.Itoa(int(cfg.LockWait / time.Second))
	return config, nil
}

func openMySQL(config *mysql.Config, connections int, lifetime time.Duration) (*sql.DB, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	pool.SetConnMaxLifetime(lifetime)
	return pool, nil
}

// migrationLockWait bounds waiting for another process that migrates.
const migrationLockWait = 30 * time.Second

func (m *mysqlDatabase) prepare(ctx context.Context) (done func(), err error) {
	if err := m.createDatabase(ctx); err != nil {
		return nil, err
	}
	conn, err := m.audit.Conn(ctx) // Waiting for the lock may take longer than a statement may.
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	sum := sha256.Sum256([]byte(m.config.DBName))
	name := "doorbuster-" + hex.EncodeToString(sum[:16]) // At most 64 bytes.
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, int(migrationLockWait/time.Second)).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = fmt.Errorf("another process has been migrating for %v", migrationLockWait)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take the migration lock: %w", err), conn.Close())
	}
	// The lock dies with its connection, which therefore does not go back to the pool.
	return func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}, nil
}

// createDatabase makes the DSN's database when it is missing. Only then does
// the user need the right to.
func (m *mysqlDatabase) createDatabase(ctx context.Context) error {
	var refused *mysql.MySQLError
	err := m.pool.PingContext(ctx)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused) || refused.Number != mysqlUnknownDatabase:
		return fmt.Errorf("connect: %w", err)
	}
	config := m.config.Clone()
	config.DBName = ""
	server, err := openMySQL(config, 1, m.cfg.ConnLifetime)
	if err != nil {
		return err
	}
	defer server.Close()
	name := "`" + strings.ReplaceAll(m.config.DBName, "`", "``") + "`"
	if _, err := server.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name+" CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func (m *mysqlDatabase) statements(schema string) []string { return splitStatements(schema) }

func (m *mysqlDatabase) orderLines() string {
	return `SELECT o.id, o.user_id, o.status, o.reason, j.sku, j.quantity, j.returned FROM orders o CROSS JOIN JSON_TABLE(o.items, '$[*]' COLUMNS (
		sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.sku',
		quantity BIGINT PATH '$.quantity',
		returned BIGINT PATH '$.returned')) j WHERE o.sale_id = @sale`
}

// locked names the index: with few rows the server would rather read the whole
// table, and wait for rows that are none of ours.
func (m *mysqlDatabase) locked(table string) string { return m.by(table, "PRIMARY") }

func (m *mysqlDatabase) inserted(column string) string { return "VALUES(" + column + ")" }

func (m *mysqlDatabase) clock() string { return "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)" }

func (m *mysqlDatabase) by(table, index string) string { return table + " FORCE INDEX (" + index + ")" }

func (m *mysqlDatabase) transient(err error) bool {
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		return errors.Is(err, mysql.ErrInvalidConn)
	}
	switch refused.Number {
	case mysqlDeadlock, mysqlLockWaitTimeout, mysqlTooManyConnections, mysqlShutdown,
		mysqlReadOnly, mysqlTransactionReadOnly, mysqlQueryInterrupted, mysqlConnectionKilled, mysqlGone, mysqlLost:
		return true
	}
	return false
}

func (m *mysqlDatabase) waitedInVain(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == mysqlLockWaitTimeout
}

func (m *mysqlDatabase) duplicate(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == mysqlDuplicateKey
}

func (m *mysqlDatabase) permanent(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && mysqlRowAtFault[refused.Number]
}

func (m *mysqlDatabase) close() error { return closePools(m.audit, m.pool) }

// closePools closes those that were opened.
func closePools(all ...*sql.DB) error {
	var errs []error
	for _, pool := range all {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(errs...)
}
