package order

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// DeadLedger is what DeadLetters needs of the ledger.
type DeadLedger interface {
	ListDead(ctx context.Context, saleID, after string, limit int) ([]ledger.DeadLetter, error)
	ReplayDead(ctx context.Context, saleID, orderID string) (ledger.Result, error)
	CancelDead(ctx context.Context, saleID, orderID, actor, reason string) (*sale.Giveback, error)
}

// DeadLetters is what an operator does about grants that could not be written.
// An open letter goes on holding its stock, and its owner goes on seeing the
// order as processing, until it is replayed or cancelled.
type DeadLetters struct {
	ledger    DeadLedger
	givebacks Givebacks
	log       *slog.Logger
}

// NewDeadLetters returns the service.
func NewDeadLetters(l DeadLedger, givebacks Givebacks, log *slog.Logger) *DeadLetters {
	return &DeadLetters{ledger: l, givebacks: givebacks, log: log}
}

// List returns the dead letters of a sale in any state, by order id above after,
// at most limit (1 to ledger.PageMax).
func (d *DeadLetters) List(ctx context.Context, saleID, after string, limit int) ([]ledger.DeadLetter, error) {
	return d.ledger.ListDead(ctx, saleID, after, limit)
}

// Replay writes the order of a dead letter, once what kept it out is gone. It may
// be repeated. It answers ledger.ErrNotFound, *ledger.DeadStatusError when the
// letter was cancelled, and an error for which ledger.Permanent holds
// when the grant still can't be written; the letter is then still open.
func (d *DeadLetters) Replay(ctx context.Context, saleID, orderID string) (ledger.Result, error) {
	return d.ledger.ReplayDead(ctx, saleID, orderID)
}

// Cancel gives a dead letter's stock back; its owner sees a cancelled order. It
// may be repeated. It answers ledger.ErrNotFound, and *ledger.DeadStatusError when
// the letter was replayed.
func (d *DeadLetters) Cancel(ctx context.Context, saleID, orderID, actor, reason string) error {
	giveback, err := d.ledger.CancelDead(ctx, saleID, orderID, actor, reason)
	if err != nil || giveback == nil {
		return err
	}
	if err := d.givebacks.Return(ctx, *giveback); err != nil {
		// The ledger has decided, so the cancel has succeeded.
		d.log.WarnContext(ctx, "stock of a dead letter not given back yet, the relay will", "error", fmt.Errorf("cancel dead letter %s: %w", orderID, err))
	}
	return nil
}
