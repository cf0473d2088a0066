package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Codes of problems with quotas.
const (
	CodeQuotaNotFound = "quota_not_found"
	CodeQuotaFixed    = "quota_fixed" // window and timezone, named in "field", stay as they were made
)

// quotaBody is the body of PUT /admin/v1/quotas/{key}. Of a quota that exists, what is
// absent stays as it is.
type quotaBody struct {
	Limit    *int64            `json:"limit"`
	Window   *sale.LimitWindow `json:"window"`
	Timezone *string           `json:"timezone"`
	Reason   string            `json:"reason"` // kept in the history
}

// quotaView is a quota as operators see it.
type quotaView struct {
	sale.Quota

	Period    string    `json:"period"` // the window that is open now
	EndsAt    time.Time `json:"window_ends_at"`
	Used      int64     `json:"used"`      // units deducted in it and not returned
	Remaining int64     `json:"remaining"` // -1 is unlimited
	// Loaded tells that Redis counts it now; otherwise used is what the books say.
	Loaded bool `json:"loaded"`
}

// putQuota makes a quota, or changes its limit. What is used stays used.
func (a *API) putQuota(r *http.Request) (answer, error) {
	q := sale.Quota{Key: r.PathValue("key"), Timezone: defaultTimezone}
	if !sale.ValidQuotaKey(q.Key) {
		return answer{}, wrongQuotaKey()
	}
	body, problem := web.Decode[quotaBody](r)
	if problem != nil {
		return answer{}, problem
	}
	if body.Limit == nil {
		return answer{}, web.InvalidField("limit", fmt.Sprintf("is required: -1 (unlimited) or 0 to %d", int64(sale.MaxQuota)))
	}
	if body.Reason != "" && !validReason(body.Reason) {
		return answer{}, web.InvalidField("reason", reasonRange)
	}
	q.Limit = *body.Limit
	// The client leaving must not keep the catalogue behind the ledger.
	ctx := context.WithoutCancel(r.Context())
	by := ledger.Cause{Actor: actor(r), Reason: body.Reason}
	status := http.StatusOK
	s, err := a.changeQuota(ctx, q, &body, by)
	if errors.Is(err, ledger.ErrNotFound) {
		status = http.StatusCreated
		s, err = a.makeQuota(ctx, q, &body)
		if errors.Is(err, ledger.ErrSaleExists) { // somebody was first
			status = http.StatusOK
			s, err = a.changeQuota(ctx, q, &body, by)
		}
	}
	if err != nil {
		return answer{}, err
	}
	if err := a.publish(ctx, s); err != nil {
		return answer{}, err
	}
	views, err := a.quotaViews(ctx, []sale.Sale{s})
	if err != nil {
		return answer{}, err
	}
	return answer{status, views[0]}, nil
}

func (a *API) makeQuota(ctx context.Context, q sale.Quota, body *quotaBody) (sale.Sale, error) {
	if body.Window != nil {
		q.Window = *body.Window
	}
	if body.Timezone != nil {
		q.Timezone = *body.Timezone
	}
	if err := q.Validate(); err != nil {
		return sale.Sale{}, err
	}
	return a.Ledger.CreateSale(ctx, q.Sale())
}

// changeQuota answers ledger.ErrNotFound when there is no such quota.
func (a *API) changeQuota(ctx context.Context, q sale.Quota, body *quotaBody, by ledger.Cause) (sale.Sale, error) {
	return a.Ledger.EditSale(ctx, sale.QuotaSaleID(q.Key), by, func(s *sale.Sale) error {
		have, err := sale.QuotaOf(s)
		if err != nil {
			return err
		}
		if body.Window != nil && *body.Window != have.Window {
			return fixed("window", string(have.Window))
		}
		if body.Timezone != nil && *body.Timezone != have.Timezone {
			return fixed("timezone", have.Timezone)
		}
		have.Limit = q.Limit
		if err := have.Validate(); err != nil {
			return err
		}
		s.SetQuota(q.Limit)
		return nil
	})
}

func (a *API) getQuota(r *http.Request) (answer, error) {
	key := r.PathValue("key")
	if !sale.ValidQuotaKey(key) {
		return answer{}, wrongQuotaKey()
	}
	s, err := a.Ledger.GetSale(r.Context(), sale.QuotaSaleID(key))
	if errors.Is(err, ledger.ErrNotFound) {
		return answer{}, web.NewProblem(http.StatusNotFound, CodeQuotaNotFound, "there is no such quota")
	}
	if err != nil {
		return answer{}, err
	}
	views, err := a.quotaViews(r.Context(), []sale.Sale{s})
	if err != nil {
		return answer{}, err
	}
	return ok(views[0]), nil
}

func (a *API) listQuotas(r *http.Request) (answer, error) {
	q := newQuery(r, "cursor", "limit")
	limit, after := q.limit(), q.textCursor(sale.ValidQuotaKey)
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListQuotas(r.Context(), sale.QuotaSaleID(after), limit+1)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(s sale.Sale) string { return s.ID[len(sale.QuotaPrefix):] })
	views, err := a.quotaViews(r.Context(), page)
	return ok(struct {
		Quotas     []quotaView `json:"quotas"`
		NextCursor *string     `json:"next_cursor"`
	}{views, next}), err
}

// quotaViews shows quotas with what is used of the windows that are open now: what
// Redis counts where a quota is loaded, else what the ledger has counted. Once Redis
// fails it is not asked again.
func (a *API) quotaViews(ctx context.Context, sales []sale.Sale) ([]quotaView, error) {
	views := make([]quotaView, len(sales))
	looking, cancel := context.WithTimeout(ctx, a.cfg.StateTimeout)
	defer cancel()
	asked := true
	for i := range sales {
		s := &sales[i]
		q, err := sale.QuotaOf(s)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		v := quotaView{Quota: q, Period: q.Window.Period(now, s.Location()), EndsAt: q.Window.End(now, s.Location()).UTC()}
		if asked {
			v.Used, v.Loaded, err = a.countedNow(looking, s, v.Period)
			asked = err == nil
		}
		if !v.Loaded {
			if v.Used, err = a.Ledger.Used(ctx, s.ID, s.Limits[0].Name(), v.Period, ""); err != nil {
				return nil, err
			}
		}
		v.Remaining = sale.QuotaRemaining(s.Limits[0].Max, v.Used)
		views[i] = v
	}
	return views, nil
}

// countedNow is what Redis counts of a quota in a window; loaded is false when it has
// no trusted state of it.
func (a *API) countedNow(ctx context.Context, s *sale.Sale, period string) (used int64, loaded bool, err error) {
	_, err = a.Stock.State(ctx, s.ID, nil)
	if _, notLoaded := errors.AsType[*stock.NotLoaded](err); notLoaded {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	err = a.Stock.Used(ctx, s.ID, s.Limits[0].Name(), period, func(_ string, units int64) error {
		used = units
		return nil
	})
	return used, err == nil, err
}

func wrongQuotaKey() *web.Problem {
	return web.InvalidField("key", fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 _ -", sale.MaxQuotaKeyLen))
}

func fixed(field, value string) *web.Problem {
	p := web.Conflict(CodeQuotaFixed, "the "+field+" of a quota can't change, it is "+value)
	p.Field = field
	return p
}
