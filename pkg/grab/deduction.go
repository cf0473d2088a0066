package grab

import (
	"errors"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
)

type deductionBody struct {
	Quantity int64 `json:"quantity"`
}

// deductionAnswer is what a backend hears. A refusal is an answer, not a problem.
type deductionAnswer struct {
	Allowed   bool  `json:"allowed"`
	Remaining int64 `json:"remaining"` // units left in the window right after, -1 is unlimited
	// DeductionID names what was deducted, for returns; there is none of an unknown quota.
	DeductionID string `json:"deduction_id,omitempty"`
}

// postDeduction takes units off a quota for a backend.
func (s *Service) postDeduction(w http.ResponseWriter, r *http.Request) {
	d := Deduction{Quota: r.PathValue("key")}
	if !sale.ValidQuotaKey(d.Quota) {
		web.Fail(w, r, web.InvalidField("key", "must be 1 to 57 of A-Z a-z 0-9 _ -"))
		return
	}
	var problem *web.Problem
	if d.Key, problem = web.IdempotencyKey(r); problem != nil {
		web.Fail(w, r, problem)
		return
	}
	body, problem := web.Decode[deductionBody](r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	d.Quantity = body.Quantity
	knewAll := s.knowsAll() // before the quota is looked up: it may be read meanwhile
	answer, err := s.engine.Deduct(r.Context(), d)
	switch {
	case errors.Is(err, ErrUnknownQuota) && !knewAll:
		s.metrics.Deductions.Of(telemetry.DeductionUndecided).Inc()
		web.Fail(w, r, undecided(unavailable("the quotas have not been read yet")))
	case errors.Is(err, ErrUnknownQuota):
		s.metrics.Deductions.Of(telemetry.DeductionUnknown).Inc()
		web.Write(w, http.StatusOK, s.unknownQuota())
	case err != nil:
		web.Failure(w, r, grabProblem(err))
	case answer.Outcome == sale.Won:
		s.metrics.Deductions.Of(telemetry.DeductionAllowed).Inc()
		web.Write(w, http.StatusOK, deductionAnswer{Allowed: true, Remaining: answer.Remaining, DeductionID: answer.OrderID})
	case answer.Outcome == sale.LimitExceeded:
		s.metrics.Deductions.Of(telemetry.DeductionRefused).Inc()
		web.Write(w, http.StatusOK, deductionAnswer{Remaining: answer.Remaining})
	default:
		s.metrics.Deductions.Of(telemetry.DeductionUndecided).Inc()
		web.Fail(w, r, undecided(answer))
	}
}

// knowsAll reports whether the catalogue has been read: before that every quota looks
// like one that nobody made.
func (s *Service) knowsAll() bool {
	select {
	case <-s.watch.Ready():
		return true
	default:
		return false
	}
}

// unknownQuota is what the configuration says about a quota that nobody made.
func (s *Service) unknownQuota() deductionAnswer {
	if s.unknown == config.UnknownAllow {
		return deductionAnswer{Allowed: true, Remaining: sale.Unlimited}
	}
	return deductionAnswer{}
}

// undecided answers for a deduction of which it is not known whether it is made. A
// pending one may be: its key then finds it.
func undecided(a Answer) *web.Problem {
	if a.Outcome == sale.NotLoaded {
		return web.Unavailable(web.CodeNotLoaded, "the quota is being loaded; try again with the same Idempotency-Key", retryAfter)
	}
	p := web.Unavailable(web.CodeUnavailable, "try again with the same Idempotency-Key", retryAfter)
	if a.Reason != "" {
		p.With("reason", a.Reason)
	}
	return p
}
