package ledger

import (
	"database/sql"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"gorm.io/gorm/schema"
)

// columnFacts is what schema.sql and a model must agree on.
type columnFacts struct {
	Type       string
	Null       bool
	PrimaryKey bool
	Numbered   bool // AUTO_INCREMENT
}

// tableFacts has the keys by name, each with its columns in order; "PRIMARY" is the primary key.
type tableFacts struct {
	Columns map[string]columnFacts
	Keys    map[string][]string
	Unique  map[string]bool
}

func TestTheModelsAreWhatSchemaSQLMakes(t *testing.T) {
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	l, err := Open(t.Context(), Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tables, err := l.write.Migrator().GetTables()
	if err != nil {
		t.Fatal(err)
	}
	var modelled []string
	for _, m := range models() {
		modelled = append(modelled, m.TableName())
		want, got := inDatabase(t, l, m.TableName()), ofModel(t, m)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the model of %s says\n%+v\nschema.sql makes\n%+v", m.TableName(), got, want)
		}
	}
	slices.Sort(tables)
	slices.Sort(modelled)
	if !slices.Equal(tables, modelled) {
		t.Errorf("schema.sql makes the tables %v, there are models of %v", tables, modelled)
	}
}

func ofModel(t *testing.T, m model) tableFacts {
	t.Helper()
	s, err := schema.Parse(m, &sync.Map{}, schema.NamingStrategy{})
	if err != nil {
		t.Fatal(err)
	}
	facts := tableFacts{Columns: map[string]columnFacts{}, Keys: map[string][]string{"PRIMARY": s.PrimaryFieldDBNames}, Unique: map[string]bool{"PRIMARY": true}}
	for _, f := range s.Fields {
		facts.Columns[f.DBName] = columnFacts{
			Type: string(f.DataType), Null: !f.NotNull && !f.PrimaryKey, PrimaryKey: f.PrimaryKey, Numbered: f.AutoIncrement,
		}
	}
	for _, index := range s.ParseIndexes() {
		for _, f := range index.Fields {
			facts.Keys[index.Name] = append(facts.Keys[index.Name], f.DBName)
		}
		facts.Unique[index.Name] = index.Class == "UNIQUE"
	}
	return facts
}

func inDatabase(t *testing.T, l *Ledger, table string) tableFacts {
	t.Helper()
	facts := tableFacts{Columns: map[string]columnFacts{}, Keys: map[string][]string{}, Unique: map[string]bool{}}
	each(t, l, `SELECT column_name, column_type, is_nullable, column_key, extra FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = ?`, table, func(rows *sql.Rows) error {
		var name, kind, null, key, extra string
		err := rows.Scan(&name, &kind, &null, &key, &extra)
		// MariaDB still tells the display width of integers.
		kind = strings.NewReplacer("bigint(20)", "bigint", "int(11)", "int").Replace(kind)
		facts.Columns[name] = columnFacts{Type: kind, Null: null == "YES", PrimaryKey: key == "PRI", Numbered: strings.Contains(extra, "auto_increment")}
		return err
	})
	each(t, l, `SELECT index_name, column_name, non_unique FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = ? ORDER BY index_name, seq_in_index`, table, func(rows *sql.Rows) error {
		var name, column string
		var shared bool
		err := rows.Scan(&name, &column, &shared)
		facts.Keys[name] = append(facts.Keys[name], column)
		facts.Unique[name] = !shared
		return err
	})
	return facts
}

func each(t *testing.T, l *Ledger, query, table string, scan func(*sql.Rows) error) {
	t.Helper()
	rows, err := l.write.WithContext(t.Context()).Raw(query, table).Rows()
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// What the embedded SQLite gets has the same tables, columns and keys.
func TestSQLiteGetsTheSameTables(t *testing.T) {
	l, err := Open(t.Context(), Config{SQLite: t.TempDir() + "/ledger.db"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range models() {
		want := ofModel(t, m)
		columns := map[string]bool{}
		each(t, l, "SELECT name, pk, \"notnull\" FROM pragma_table_info(?)", m.TableName(), func(rows *sql.Rows) error {
			var name string
			var primary int
			var notNull bool
			err := rows.Scan(&name, &primary, &notNull)
			columns[name] = true
			if want.Columns[name].PrimaryKey != (primary > 0) || !want.Columns[name].PrimaryKey && want.Columns[name].Null == notNull {
				t.Errorf("%s.%s: primary key %v, NOT NULL %v", m.TableName(), name, primary > 0, notNull)
			}
			return err
		})
		if got := slices.Sorted(maps.Keys(columns)); !slices.Equal(got, slices.Sorted(maps.Keys(want.Columns))) {
			t.Errorf("%s has the columns %v", m.TableName(), got)
		}
		indexes := 0
		each(t, l, "SELECT name FROM pragma_index_list(?) WHERE origin <> 'pk'", m.TableName(), func(rows *sql.Rows) error {
			var name string
			indexes++
			return rows.Scan(&name)
		})
		if indexes != len(want.Keys)-1 {
			t.Errorf("%s has %d keys besides the primary one, want %d", m.TableName(), indexes, len(want.Keys)-1)
		}
	}
}
