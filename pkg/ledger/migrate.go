package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/doorbuster/doorbuster"
	"gorm.io/gorm"
)

// schemaVersion is the version of schema.sql.
const schemaVersion = 1

// SchemaError says that the database was not made from this program's
// schema.sql, and what was found instead.
type SchemaError struct {
	Found string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the ledger's database does not fit this program (schema version %d, fingerprint %.12s): %s",
		schemaVersion, fingerprint(doorbuster.Schema), e.Found)
}

// Migrate makes the tables in an empty database, and the database itself when
// it is missing. It may be called by several processes at once and again at
// every start. It answers *SchemaError, and touches nothing, when the database
// holds other tables.
func (l *Ledger) Migrate(ctx context.Context) error {
	done, err := l.store.prepare(ctx)
	if err != nil {
		return fmt.Errorf("migrate ledger: %w", err)
	}
	defer done()
	db := l.write.WithContext(ctx)
	if err := applySchema(db, l.store.statements(doorbuster.Schema)); err != nil {
		return fmt.Errorf("migrate ledger: %w", err)
	}
	return nil
}

// CheckSchema answers *SchemaError unless Migrate has made the tables.
func (l *Ledger) CheckSchema(ctx context.Context) error {
	made, err := schemaMade(l.read.WithContext(ctx))
	if err == nil && !made {
		err = &SchemaError{Found: "it has no tables yet, or not all"}
	}
	if err != nil {
		return fmt.Errorf("check the ledger's schema: %w", err)
	}
	return nil
}

// applySchema is all or nothing in its effect: DDL cannot be rolled back, but
// the version's row comes last, and until it is there the rest is repeated.
func applySchema(db *gorm.DB, statements []string) error {
	made, err := schemaMade(db)
	if err != nil || made {
		return err
	}
	for _, statement := range statements {
		if err := db.Exec(statement).Error; err != nil {
			return fmt.Errorf("%.60s...: %w", statement, err)
		}
	}
	row := schemaVersionRow{Version: schemaVersion, Fingerprint: fingerprint(doorbuster.Schema), AppliedAt: now()}
	if err := db.Create(&row).Error; err != nil {
		return fmt.Errorf("note the schema's version: %w", err)
	}
	return nil
}

// schemaMade reports whether the tables are complete. Without schema_version,
// which is the first to be made, no other table may be there.
func schemaMade(db *gorm.DB) (bool, error) {
	tables, err := db.Migrator().GetTables()
	if err != nil {
		return false, fmt.Errorf("list the tables: %w", err)
	}
	if !slices.Contains(tables, schemaVersionRow{}.TableName()) {
		for _, model := range models() {
			if slices.Contains(tables, model.TableName()) {
				return false, &SchemaError{Found: "it has a table " + model.TableName() + " of another origin"}
			}
		}
		return false, nil
	}
	var row schemaVersionRow
	err = db.Order("version DESC").Take(&row).Error
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the schema's version: %w", err)
	case row.Version != schemaVersion || row.Fingerprint != fingerprint(doorbuster.Schema):
		return false, &SchemaError{Found: fmt.Sprintf("it has schema version %d, fingerprint %.12s", row.Version, row.Fingerprint)}
	}
	return true, nil
}
