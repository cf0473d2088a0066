package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// Delays between attempts to prepare the ledger, see backoff.Delay.
const (
	ledgerRetryBase = 100 * time.Millisecond
	ledgerRetryMax  = 5 * time.Second
)

// Ledger opens the ledger, waits until MySQL answers and its tables exist, and
// watches its health. A database that holds other tables is an error at once.
func (d *Daemon) Ledger(ctx context.Context, cfg config.MySQL, events config.Events) (*ledger.Ledger, error) {
	return d.openLedger(ctx, ledger.Config{
		DSN: cfg.DSN, MaxOpen: cfg.MaxOpen, DialTimeout: cfg.DialTimeout, Timeout: cfg.Timeout, NoEvents: !events.On,
	})
}

// LedgerFile is Ledger for a SQLite file, which is made when missing. For
// development only.
func (d *Daemon) LedgerFile(ctx context.Context, path string, events config.Events) (*ledger.Ledger, error) {
	return d.openLedger(ctx, ledger.Config{SQLite: path, NoEvents: !events.On})
}

func (d *Daemon) openLedger(ctx context.Context, cfg ledger.Config) (*ledger.Ledger, error) {
	l, err := ledger.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d.OnClose(func() { _ = l.Close() }) // nothing can be done about it, and nothing is lost
	d.Health.Add("mysql", l.Ping)
	if err := d.migrate(ctx, l); err != nil {
		return nil, fmt.Errorf("prepare the ledger: %w", err)
	}
	return l, nil
}

func (d *Daemon) migrate(ctx context.Context, l *ledger.Ledger) error {
	for attempt := 1; ; attempt++ {
		err := l.Migrate(ctx)
		if _, foreign := errors.AsType[*ledger.SchemaError](err); err == nil || foreign || ctx.Err() != nil {
			return err
		}
		d.Log.WarnContext(ctx, "ledger not prepared yet", "attempt", attempt, "error", err)
		if !backoff.Pause(ctx, backoff.Delay(attempt, ledgerRetryBase, ledgerRetryMax)) {
			return err
		}
	}
}
