package grab

import (
	"context"
	"errors"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// ErrUnknownQuota says that the catalogue has no such quota.
var ErrUnknownQuota = errors.New("unknown quota")

// loadPollMin and loadPollMax bound the growing delay between two tries of a
// deduction whose quota is being loaded.
const (
	loadPollMin = 10 * time.Millisecond
	loadPollMax = 200 * time.Millisecond
)

// Deduction takes units off a quota.
type Deduction struct {
	Quota    string // its key
	Key      string // idempotency key, empty for none
	Quantity int64  // units, 1 to sale.MaxQuantity
}

// Deduct decides a deduction the way a grab is decided: won or limit_exceeded, with
// what remains; any other outcome left it undecided, or of pending unknown, and the
// same key is safe. The first one of a window finds the quota not loaded: it asks for
// that, like all others who come, and waits for at most Config.LoadWait. Errors:
// ErrUnknownQuota, a *sale.FieldError for the quantity, or ErrStopped.
func (e *Engine) Deduct(ctx context.Context, d Deduction) (Answer, error) {
	if e.inFlight.Add(1) > e.inFlightMax.Load() {
		e.inFlight.Add(-1)
		return unavailable("too many requests in flight"), nil
	}
	defer e.inFlight.Add(-1)
	if d.Quantity < 1 || d.Quantity > sale.MaxQuantity {
		return Answer{}, &sale.FieldError{Field: "quantity", Message: quantityRange}
	}
	saleID := sale.QuotaSaleID(d.Quota)
	// One id for all tries, also where no key names it.
	id := sale.OrderID(saleID, sale.QuotaUser, d.Key)
	until := time.Now().Add(e.cfg.LoadWait)
	for attempt := 1; ; attempt++ {
		s, ok := e.catalogue.get(saleID)
		if !ok || !s.Quota {
			return Answer{}, ErrUnknownQuota
		}
		a, err := e.submit(ctx, s, sale.Grant{
			Kind: sale.GrantGrab, OrderID: id, User: sale.QuotaUser, Key: d.Key, At: e.now(),
			Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: d.Quantity}},
		})
		if err != nil || a.Outcome != sale.NotLoaded || time.Now().After(until) {
			return a, err
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, loadPollMin, loadPollMax)) {
			return a, nil
		}
	}
}

// quotaLeft is what a quota's sale has left when so many units are used; 0 for any
// other sale.
func quotaLeft(s *sale.Sale, used int64) int64 {
	if !s.Quota {
		return 0
	}
	return sale.QuotaRemaining(s.Limits[0].Max, used)
}
