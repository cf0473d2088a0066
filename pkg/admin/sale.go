package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

func (a *API) createSale(r *http.Request) (answer, error) {
	draft, problem := web.Decode[saleDraft](r)
	if problem != nil {
		return answer{}, problem
	}
	s, err := draft.sale()
	if err != nil {
		return answer{}, err
	}
	created, err := a.Ledger.CreateSale(r.Context(), *s)
	if errors.Is(err, ledger.ErrSaleExists) {
		return answer{}, web.Conflict(CodeSaleExists, "a sale with this id exists")
	}
	if err != nil {
		return answer{}, err
	}
	view, err := a.view(r.Context(), created)
	return answer{http.StatusCreated, view}, err
}

func (a *API) getSale(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	view, err := a.view(r.Context(), s)
	return ok(view), err
}

// sale returns the sale that the path names.
func (a *API) sale(r *http.Request) (sale.Sale, error) {
	id, err := saleID(r)
	if err != nil {
		return sale.Sale{}, err
	}
	s, err := a.Ledger.GetSale(r.Context(), id)
	return s, noSale(err)
}

// ordinarySale is sale for what a quota's sale is not to be used for.
func (a *API) ordinarySale(r *http.Request) (sale.Sale, error) {
	s, err := a.sale(r)
	if err == nil && s.Quota {
		err = saleNotFound()
	}
	return s, err
}

// saleID returns the id in the path. One that can't be an id names no sale.
func saleID(r *http.Request) (string, error) {
	id := r.PathValue("sale_id")
	if !sale.ValidID(id) {
		return "", saleNotFound()
	}
	return id, nil
}

// noSale turns the ledger's "not found" into the caller's.
func noSale(err error) error {
	if errors.Is(err, ledger.ErrNotFound) {
		return saleNotFound()
	}
	return err
}

func (a *API) listSales(r *http.Request) (answer, error) {
	q := newQuery(r, "cursor", "limit")
	limit, after := q.limit(), q.textCursor(sale.ValidID)
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListSales(r.Context(), after, limit+1)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(s sale.Sale) string { return s.ID })
	views, err := a.views(r.Context(), page)
	return ok(struct {
		Sales      []saleView `json:"sales"`
		NextCursor *string    `json:"next_cursor"`
	}{views, next}), err
}

// approve moves a draft on and has it loaded, so that the first grab finds it
// so. When that fails the approval stands: the first grab asks again.
func (a *API) approve(r *http.Request) (answer, error) {
	s, err := a.moved(r, approve)
	if err != nil {
		return answer{}, err
	}
	ctx := context.WithoutCancel(r.Context())
	if !a.stateOf(ctx, s).loaded() {
		a.load(ctx, s.ID, reconcile.ReasonApprove)
	}
	view, err := a.view(ctx, s)
	return ok(view), err
}

func (a *API) load(ctx context.Context, saleID, reason string) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.LoadTimeout)
	defer cancel()
	if _, err := a.Stream.AskReconcile(ctx, saleID, reason); err != nil {
		a.Log.WarnContext(ctx, "sale not loaded yet", "sale_id", saleID, "reason", reason, "error", err)
	}
}

// moveBy serves a move that needs nothing else.
func moveBy(m move) func(*API, *http.Request) (answer, error) {
	return func(a *API, r *http.Request) (answer, error) {
		s, err := a.moved(r, m)
		if err != nil {
			return answer{}, err
		}
		view, err := a.view(r.Context(), s)
		return ok(view), err
	}
}

// moved makes a move in the ledger and in the catalogue.
func (a *API) moved(r *http.Request, m move) (sale.Sale, error) {
	id, err := saleID(r)
	if err != nil {
		return sale.Sale{}, err
	}
	if sale.IsQuotaSale(id) {
		return sale.Sale{}, saleNotFound() // a quota is always open
	}
	why, err := readBecause(r)
	if err != nil {
		return sale.Sale{}, err
	}
	// The client leaving must not keep the catalogue behind the ledger.
	ctx := context.WithoutCancel(r.Context())
	s, err := a.Ledger.EditSale(ctx, id, ledger.Cause{Actor: actor(r), Reason: why.Reason}, m.apply)
	if err != nil {
		return sale.Sale{}, noSale(err)
	}
	return s, a.publish(ctx, s)
}

// publish shows a change to the grab nodes, to this process's engine at once.
func (a *API) publish(ctx context.Context, s sale.Sale) error {
	if s.Status == sale.StatusDraft {
		return nil
	}
	a.Engine.Put(&s)
	if err := a.Stream.PutSale(ctx, &s); err != nil {
		a.Log.WarnContext(ctx, "change of a sale not published yet", "sale_id", s.ID, "revision", s.Revision, "error", err)
		return web.Unavailable(web.CodeUnavailable,
			"the change is stored, but the grab services do not have it yet; repeat the request, or wait", retryAfter)
	}
	return nil
}
