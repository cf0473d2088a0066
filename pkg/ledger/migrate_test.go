package ledger_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/go-sql-driver/mysql"
)

func TestAMissingDatabaseIsMade(t *testing.T) {
	config, err := mysql.ParseDSN(harness.SharedMariaDB(t).NewDatabase(t))
	must(t, err)
	config.DBName += "-`new`"
	t.Cleanup(func() {
		_, err := openRaw(t, "mysql", harness.SharedMariaDB(t).DSN("")).ExecContext(
			context.Background(), "DROP DATABASE `"+strings.ReplaceAll(config.DBName, "`", "``")+"`")
		must(t, err)
	})
	l, err := ledger.Open(t.Context(), ledger.Config{DSN: config.FormatDSN()})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	if err := l.Ping(t.Context()); err == nil {
		t.Error("a missing database answered")
	}

	must(t, l.Migrate(t.Context()))

	must(t, l.Ping(t.Context()))
	must(t, l.CheckSchema(t.Context()))
}

func TestSeveralProcessesMayMigrateAtOnceAndAgain(t *testing.T) {
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	var done sync.WaitGroup
	for range 4 {
		l, err := ledger.Open(t.Context(), ledger.Config{DSN: dsn})
		must(t, err)
		t.Cleanup(func() { must(t, l.Close()) })
		done.Go(func() {
			for range 2 {
				if err := l.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
}

func TestAMigrationThatWasInterruptedIsFinished(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		d.exec(t, "DELETE FROM schema_version")
		d.exec(t, "DROP TABLE dead_letters")
		requireSchemaError(t, d.CheckSchema(t.Context()))
		must(t, d.Migrate(t.Context()))
		must(t, d.CheckSchema(t.Context()))
		bury(t, d, grab("s", "ann", "1", "A", 1))
	})
}

func TestAnotherSchemaIsLeftAlone(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		d.exec(t, "UPDATE schema_version SET fingerprint = 'of the next release', version = 2")
		requireSchemaError(t, d.Migrate(t.Context()))
		requireSchemaError(t, d.CheckSchema(t.Context()))
	})
}

func TestTablesOfAnotherOriginAreLeftAlone(t *testing.T) {
	for name, cfg := range map[string]ledger.Config{
		"mysql":  {DSN: harness.SharedMariaDB(t).NewDatabase(t)},
		"sqlite": {SQLite: filepath.Join(t.TempDir(), "theirs.db")},
	} {
		raw := openRaw(t, name, cfg.DSN+cfg.SQLite)
		_, err := raw.ExecContext(t.Context(), "CREATE TABLE orders (id INT)")
		must(t, err)
		l, err := ledger.Open(t.Context(), cfg)
		must(t, err)
		t.Cleanup(func() { must(t, l.Close()) })

		requireSchemaError(t, l.Migrate(t.Context()))
		requireSchemaError(t, l.CheckSchema(t.Context()))

		if _, err := raw.ExecContext(t.Context(), "SELECT * FROM schema_version"); err == nil {
			t.Errorf("%s: a table was made all the same", name)
		}
	}
}

func requireSchemaError(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*ledger.SchemaError](err); !ok {
		t.Fatalf("got %v, want a SchemaError", err)
	}
}

func TestAConfigurationOutOfRangeIsRefused(t *testing.T) {
	for name, cfg := range map[string]ledger.Config{
		"nothing":         {},
		"both":            {DSN: "u@tcp(h)/d", SQLite: "x"},
		"no database":     {DSN: "root:secret@tcp(localhost)/"},
		"garbage":         {DSN: "root:secret@:@"},
		"no connections":  {SQLite: "x", MaxOpen: -1},
		"endless tries":   {SQLite: "x", Attempts: 1000},
		"too many values": {SQLite: "x", InsertRows: 100000},
	} {
		_, err := ledger.Open(t.Context(), cfg)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
