package ledger

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Time is what the clock of the database says, in milliseconds. What is due is judged
// by it, so that a process whose own clock is off neither ends an order nor gives a
// delivery up before its time.
func (l *Ledger) Time(ctx context.Context) (time.Time, error) {
	return l.clock(l.read.WithContext(ctx))
}

// clock is Time in a transaction. SQLite's is that of its process.
func (l *Ledger) clock(tx *gorm.DB) (time.Time, error) {
	var ms int64
	if err := tx.Raw("SELECT " + l.store.clock()).Scan(&ms).Error; err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.UnixMilli(ms).UTC(), nil
}
