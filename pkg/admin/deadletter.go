package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

type deadLetterView struct {
	OrderID    string            `json:"order_id"`
	SaleID     string            `json:"sale_id"`
	Status     ledger.DeadStatus `json:"status"`
	Reason     string            `json:"reason"`
	Attempts   int               `json:"attempts"`
	Seq        uint64            `json:"seq"`
	Generation int64             `json:"generation"`
	User       string            `json:"user,omitempty"`  // of a record that can be read
	Items      []sale.Line       `json:"items,omitempty"` // the same
	At         time.Time         `json:"at"`
}

func viewOfDead(d ledger.DeadLetter) deadLetterView {
	v := deadLetterView{
		OrderID: d.OrderID, SaleID: d.SaleID, Status: d.Status, Reason: d.Reason, Attempts: d.Attempts,
		Seq: d.Seq, Generation: d.Generation, At: d.At.UTC(),
	}
	if g, err := d.Grant(); err == nil {
		v.User, v.Items = g.User, g.Lines
	}
	return v
}

func (a *API) listDeadLetters(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "cursor", "limit")
	limit, after := q.limit(), q.textCursor(validLetter)
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.DeadLetters.List(r.Context(), s.ID, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(d ledger.DeadLetter) string { return d.OrderID })
	views := make([]deadLetterView, len(page))
	for i := range page {
		views[i] = viewOfDead(page[i])
	}
	return ok(struct {
		DeadLetters []deadLetterView `json:"dead_letters"`
		NextCursor  *string          `json:"next_cursor"`
	}{views, next}), nil
}

// validLetter reports whether a dead letter can have this name.
func validLetter(id string) bool {
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= sale.MaxOrderIDLen
}

func (a *API) replayDeadLetter(r *http.Request) (answer, error) {
	saleID, orderID, err := letterID(r)
	if err != nil {
		return answer{}, err
	}
	if err := noBody(r); err != nil {
		return answer{}, err
	}
	if _, err := a.DeadLetters.Replay(r.Context(), saleID, orderID); err != nil {
		return answer{}, deadProblem(err)
	}
	return a.deadLetter(r.Context(), saleID, orderID)
}

func (a *API) cancelDeadLetter(r *http.Request) (answer, error) {
	saleID, orderID, err := letterID(r)
	if err != nil {
		return answer{}, err
	}
	why, err := readBecause(r)
	if err != nil {
		return answer{}, err
	}
	err = a.DeadLetters.Cancel(context.WithoutCancel(r.Context()), saleID, orderID, actor(r), why.Reason)
	if err != nil {
		return answer{}, deadProblem(err)
	}
	return a.deadLetter(r.Context(), saleID, orderID)
}

// letterID returns what the path names.
func letterID(r *http.Request) (sale, order string, err error) {
	sale, err = saleID(r)
	order = r.PathValue("order_id")
	if err == nil && !validLetter(order) {
		err = deadLetterNotFound()
	}
	return sale, order, err
}

func (a *API) deadLetter(ctx context.Context, saleID, orderID string) (answer, error) {
	d, err := a.Ledger.GetDead(ctx, saleID, orderID)
	if err != nil {
		return answer{}, deadProblem(err)
	}
	return ok(viewOfDead(d)), nil
}

func deadProblem(err error) error {
	if state, ok := errors.AsType[*ledger.DeadStatusError](err); ok {
		return web.Conflict(CodeDeadLetterState, "the dead letter is "+string(state.Status)).
			With("dead_letter_status", string(state.Status))
	}
	poison, poisonous := errors.AsType[*ledger.PoisonError](err)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return deadLetterNotFound()
	case poisonous:
		return web.Conflict(CodeDeadLetterPoison, "it still can't be written: "+poison.Grants[0].Reason.Error())
	case errors.Is(err, sale.ErrCorrupt):
		return web.Conflict(CodeDeadLetterPoison, "it can't be read, only cancelled")
	}
	return err
}
