package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// maxReason bounds a reason, in characters. The stock log has room for what is
// added to it.
const maxReason = 200

// recordPoll and recordPollMax bound the growing pause between two looks for an
// adjustment in the ledger.
const (
	recordPoll    = 10 * time.Millisecond
	recordPollMax = 200 * time.Millisecond
)

// adjustBody is the body of an adjustment: units to add or to take, or the stock the
// item is to have, for a change from or to unlimited.
type adjustBody struct {
	Delta  int64  `json:"delta"`
	Stock  *int64 `json:"stock"`
	Reason string `json:"reason"`
}

var reasonRange = fmt.Sprintf("must be 1 to %d characters, no control characters", maxReason)

func validReason(reason string) bool {
	if reason == "" || utf8.RuneCountInString(reason) > maxReason {
		return false
	}
	for _, c := range reason {
		if unicode.IsControl(c) {
			return false
		}
	}
	return true
}

func (b *adjustBody) validate() error {
	switch {
	case b.Stock != nil && b.Delta != 0:
		return &sale.FieldError{Field: "stock", Message: "can't stand together with delta"}
	case b.Stock != nil && (*b.Stock < sale.Unlimited || *b.Stock > sale.MaxStock):
		return &sale.FieldError{Field: "stock", Message: fmt.Sprintf("must be -1 (unlimited) or 0 to %d", sale.MaxStock)}
	case b.Stock == nil && (b.Delta == 0 || b.Delta > sale.MaxStock || b.Delta < -sale.MaxStock):
		return &sale.FieldError{Field: "delta", Message: fmt.Sprintf("must be -%d to %d and not 0", sale.MaxStock, sale.MaxStock)}
	}
	if !validReason(b.Reason) {
		return &sale.FieldError{Field: "reason", Message: reasonRange}
	}
	return nil
}

// adjustment is one change of an item's stock.
type adjustment struct {
	adjustBody

	saleID, sku string
	ref         string // names it in the books
	actor       string
}

// newAdjustment names an adjustment: one key always names the same one of an
// item. Without a key each is another. No user can be called what stands for the
// user here, because of the space.
func newAdjustment(saleID, sku, key, actor string, body adjustBody) adjustment {
	return adjustment{adjustBody: body, saleID: saleID, sku: sku, actor: actor, ref: sale.OrderID(saleID, "adjust "+sku, key)}
}

// note is the reason as the stock log keeps it. When less was taken than asked
// for it says so, and a retry that asks for something else can be told from it.
func (a *adjustment) note(applied int64) string {
	if applied == a.Delta {
		return a.Reason
	}
	return fmt.Sprintf("%s (asked for %d, clamped to %d)", a.Reason, a.Delta, applied)
}

// adjusted is the answer to an adjustment.
type adjusted struct {
	State        string `json:"state"`
	AdjustmentID string `json:"adjustment_id"`
	SaleID       string `json:"sale_id"`
	SKU          string `json:"sku"`
	Requested    int64  `json:"requested"`
	Applied      int64  `json:"applied"`
	ClampedBy    int64  `json:"clamped_by"`   // units that could not be taken
	StockBefore  *int64 `json:"stock_before"` // the whole stock; null while pending
	StockAfter   *int64 `json:"stock_after"`
	Replayed     bool   `json:"replayed"`
}

const (
	stateApplied = "applied"
	statePending = "pending"
)

func (a *adjustment) answer(state string, applied int64, replayed bool) adjusted {
	done := adjusted{
		State: state, AdjustmentID: a.ref, SaleID: a.saleID, SKU: a.sku,
		Requested: a.Delta, Applied: applied, Replayed: replayed,
	}
	if a.Delta < 0 {
		done.ClampedBy = applied - a.Delta
	}
	return done
}

// recorded is the answer from the ledger's record, unless that is of a
// different request with the same key.
func (a *adjustment) recorded(record ledger.AdjustmentRecord, replayed bool) (answer, error) {
	applied := record.Flow.Step
	if a.Delta < 0 && applied == 0 {
		return answer{}, web.Conflict(web.CodeConflict, "the ledger refused the reduction: "+record.Flow.Reason)
	}
	if record.Flow.Reason != a.note(applied) || (applied > 0) != (a.Delta > 0) {
		return answer{}, keyReused()
	}
	done := a.answer(stateApplied, applied, replayed)
	done.StockBefore, done.StockAfter = &record.StockBefore, &record.StockAfter
	return ok(done), nil
}

func keyReused() *web.Problem {
	p := web.Conflict(web.CodeIdempotencyMismatch, "the Idempotency-Key was used for another adjustment of this item")
	p.Field = web.IdempotencyHeader
	return p
}

func (a *API) adjust(r *http.Request) (answer, error) {
	s, err := a.ordinarySale(r)
	if err != nil {
		return answer{}, err
	}
	item, known := s.Item(r.PathValue("sku"))
	if !known {
		return answer{}, itemNotFound()
	}
	key, problem := web.IdempotencyKey(r)
	if problem != nil {
		return answer{}, problem
	}
	body, problem := web.Decode[adjustBody](r)
	if problem != nil {
		return answer{}, problem
	}
	if err := body.validate(); err != nil {
		return answer{}, err
	}
	// From here on the client leaving must not leave things half done.
	ctx := context.WithoutCancel(r.Context())
	ask := newAdjustment(s.ID, item.SKU, key, actor(r), body)
	if body.Stock != nil {
		return a.setStock(ctx, s, item, &ask)
	}
	record, err := a.Ledger.AdjustmentRecord(ctx, ask.saleID, ask.sku, ask.ref)
	if errors.Is(err, ledger.ErrNotFound) {
		if err := a.unusedForStock(ctx, &ask); err != nil {
			return answer{}, err
		}
	}
	switch {
	case err == nil:
		return a.repeated(ctx, &ask, record)
	case !errors.Is(err, ledger.ErrNotFound):
		return answer{}, err
	case s.Status != sale.StatusApproved && s.Status != sale.StatusPaused:
		return answer{}, wrongState(s.Status, "the stock of a sale that is "+string(s.Status)+" can't be adjusted")
	case item.Stock == sale.Unlimited:
		return answer{}, stockUnlimited()
	case ask.Delta > 0:
		return a.raise(ctx, &ask)
	default:
		return a.lower(ctx, s, &ask)
	}
}

// repeated answers from the books.
func (a *API) repeated(ctx context.Context, ask *adjustment, record ledger.AdjustmentRecord) (answer, error) {
	done, err := ask.recorded(record, true)
	if err == nil && record.Giveback != nil {
		a.giveBack(ctx, *record.Giveback) // the first attempt may have come no further than the ledger
	}
	return done, err
}

// raise decides in the ledger and then gives the units to Redis.
func (a *API) raise(ctx context.Context, ask *adjustment) (answer, error) {
	up, err := a.Ledger.AdjustUp(ctx, ledger.Adjustment{
		SaleID: ask.saleID, SKU: ask.sku, Delta: ask.Delta, Ref: ask.ref, Actor: ask.actor, Reason: ask.Reason,
	})
	switch {
	case errors.Is(err, ledger.ErrRefReused):
		return answer{}, keyReused()
	case errors.Is(err, ledger.ErrUnknownItem):
		return answer{}, itemNotFound()
	case errors.Is(err, ledger.ErrUnlimited):
		return answer{}, stockUnlimited()
	case err != nil:
		return answer{}, err
	}
	if up.Giveback != nil {
		a.giveBack(ctx, *up.Giveback)
	}
	record, err := a.Ledger.AdjustmentRecord(ctx, ask.saleID, ask.sku, ask.ref)
	if err != nil {
		return answer{}, err
	}
	return ask.recorded(record, up.Replayed)
}

// lower takes the units in Redis, in line with the grabs, and waits for the
// ledger to have it. It never takes what is sold: it takes what is left.
func (a *API) lower(ctx context.Context, s sale.Sale, ask *adjustment) (answer, error) {
	taken, replayed, err := a.take(ctx, s, ask)
	if err != nil {
		return answer{}, err
	}
	if taken == 0 {
		item, _ := s.Item(ask.sku)
		done := ask.answer(stateApplied, 0, false)
		done.StockBefore, done.StockAfter = &item.Stock, &item.Stock
		return ok(done), nil
	}
	record, err := a.awaitRecord(ctx, ask)
	if errors.Is(err, ledger.ErrNotFound) {
		return answer{http.StatusAccepted, ask.answer(statePending, -taken, replayed)}, nil
	}
	if err != nil {
		return answer{}, err
	}
	return ask.recorded(record, replayed)
}

// take takes as many units as are left, at most those asked for. While others
// grab, what is left shrinks between two attempts.
func (a *API) take(ctx context.Context, s sale.Sale, ask *adjustment) (taken int64, replayed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.TakeTimeout)
	defer cancel()
	a.Engine.Put(&s) // the engine's own watch may not have brought it yet
	want := -ask.Delta
	empty := false
	for range a.cfg.TakeAttempts {
		got, err := a.Engine.Take(ctx, grab.Adjustment{
			SaleID: ask.saleID, SKU: ask.sku, Units: want, ID: ask.ref, Note: sale.AdjustmentNote(ask.actor, ask.note(-want)),
		})
		if err != nil {
			return 0, false, fmt.Errorf("take stock of sale %s: %w", ask.saleID, err)
		}
		switch got.Outcome {
		case sale.Won, sale.Pending:
			return got.Lines[0].Quantity, got.Replayed, nil
		case sale.SoldOut:
			if got.Left == 0 && empty {
				return 0, false, nil
			}
			// What is left is told as of the end of a batch. The last units may have gone
			// to this very adjustment, asked for twice at once: asking again tells.
			if empty = got.Left == 0; !empty {
				want = min(want, got.Left)
			}
		case sale.NotLoaded:
			return 0, false, web.Unavailable(web.CodeNotLoaded, "the sale is not loaded: "+got.Reason, retryAfter)
		default:
			return 0, false, web.Unavailable(web.CodeUnavailable, got.Reason, retryAfter)
		}
	}
	return 0, false, web.Unavailable(web.CodeUnavailable, "the stock changes too fast; try again", retryAfter)
}

// awaitRecord looks for the adjustment until the ledger has it, or answers
// ledger.ErrNotFound when the time is over.
func (a *API) awaitRecord(ctx context.Context, ask *adjustment) (ledger.AdjustmentRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RecordTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		record, err := a.Ledger.AdjustmentRecord(ctx, ask.saleID, ask.sku, ask.ref)
		if err == nil {
			return record, nil
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, recordPoll, recordPollMax)) {
			// A ledger that can't be asked does not make the reduction undone.
			return ledger.AdjustmentRecord{}, ledger.ErrNotFound
		}
	}
}
