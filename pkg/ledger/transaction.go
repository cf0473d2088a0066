package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"gorm.io/gorm"
)

// change runs one transaction, and runs it again from the start as long as the
// reason of its failure may pass. Whether a commit that lost its answer took
// place is unknown: do must find its own work and leave it alone.
func (l *Ledger) change(ctx context.Context, what string, do func(tx *gorm.DB) error) error {
	for attempt := 1; ; attempt++ {
		err := l.write.WithContext(ctx).Transaction(do, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err == nil {
			return nil
		}
		if attempt == l.cfg.Attempts || !l.transient(err) || !backoff.Pause(ctx, backoff.Delay(attempt, l.cfg.RetryMin, l.cfg.RetryMax)) {
			return fmt.Errorf("%s: %w", what, inTime(ctx, err))
		}
	}
}

// inTime says of an error that the time was up, when it was: the error may be what came
// of that, or one that would have passed.
func inTime(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && !errors.Is(err, over) {
		return fmt.Errorf("%w: %w", over, err)
	}
	return err
}

// errStale says that another transaction has changed what this one had found before
// its locks; begun again, it finds the change.
var errStale = errors.New("changed by another transaction")

// transient reports whether the same transaction may succeed when it is begun again
// now: a row that another has inserted meanwhile is then found.
func (l *Ledger) transient(err error) bool {
	return !timeIsUp(err) && (l.passing(err) || l.store.duplicate(err))
}

func timeIsUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Transient reports whether an error is the database's or its load's, and no
// fault of the data: a lock that another holds, a deadlock, a lost connection, or
// that the call's time was up. It passes, be it after hours.
func (l *Ledger) Transient(err error) bool { return timeIsUp(err) || l.passing(err) }

func (l *Ledger) passing(err error) bool {
	var network net.Error
	return errors.Is(err, errStale) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) || l.store.transient(err)
}

// Permanent reports whether an error blames the data: the same call fails again,
// however often it is repeated. Everything else may pass; see Transient.
func (l *Ledger) Permanent(err error) bool {
	var poison *PoisonError
	return errors.As(err, &poison) || l.store.permanent(err)
}
