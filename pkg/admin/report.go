package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// reconcile has one of the reconcilers go over a sale and answers its report.
func (a *API) reconcile(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "force")
	reason := reconcile.ReasonOperator
	if q.flag("force") {
		reason = reconcile.ReasonForced
	}
	if q.failed != nil {
		return answer{}, q.failed
	}
	why, err := readBecause(r)
	if err != nil {
		return answer{}, err
	}
	if s.Status == sale.StatusDraft {
		return answer{}, wrongState(s.Status, "a draft has no state that could be reconciled")
	}
	a.Log.InfoContext(r.Context(), "operator asks for a reconcile", "sale_id", s.ID, "forced", reason == reconcile.ReasonForced, "reason", why.Reason)
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.ReconcileTimeout)
	defer cancel()
	report, err := a.Stream.AskReconcile(ctx, s.ID, reason)
	return ok(json.RawMessage(report)), err
}

func (a *API) verify(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	if q := newQuery(r); q.failed != nil {
		return answer{}, q.failed
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.VerifyTimeout)
	defer cancel()
	report, err := a.Verifier.Verify(ctx, s.ID)
	return ok(report), err
}
