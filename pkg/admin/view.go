package admin

import (
	"context"
	"errors"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// saleView is a sale as operators see it.
type saleView struct {
	sale.Sale

	Phase     sale.Phase   `json:"phase"`
	Items     []itemView   `json:"items"`
	Limits    []sale.Limit `json:"limits"`
	RateLimit int64        `json:"rate_limit"`
	Regrab    bool         `json:"regrab_after_cancel"`
	// NoRegrab stays nil: Regrab is how the API says it.
	NoRegrab *struct{} `json:"no_regrab,omitempty"`
	saleState
}

// itemView is an item with its counts, in units.
type itemView struct {
	SKU        string `json:"sku"`
	Stock      int64  `json:"stock"`
	PriceCents int64  `json:"price_cents"`
	Remaining  *int64 `json:"remaining"` // in Redis; null while the sale is not loaded
	Granted    int64  `json:"granted"`
	Returned   int64  `json:"returned"`
	Sold       int64  `json:"sold"`
}

// saleState is what Redis has of a sale.
type saleState struct {
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Era        string `json:"era,omitempty"`
	Generation int64  `json:"generation"`

	remaining map[string]int64
}

// The states of a sale in Redis, and the reasons of "not_loaded" besides those
// of stock.NotLoaded.
const (
	stateLoaded       = "loaded"
	stateNotLoaded    = "not_loaded"
	reasonDraft       = "draft"
	reasonUnreachable = "unreachable"
)

func (s saleState) loaded() bool { return s.State == stateLoaded }

// stateOf looks into Redis. That Redis can't be reached is a state, too.
func (a *API) stateOf(ctx context.Context, s sale.Sale) saleState {
	if s.Status == sale.StatusDraft {
		return saleState{State: stateNotLoaded, Reason: reasonDraft}
	}
	skus := make([]string, len(s.Items))
	for i, it := range s.Items {
		skus[i] = it.SKU
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StateTimeout)
	defer cancel()
	state, err := a.Stock.State(ctx, s.ID, skus)
	if refused, ok := errors.AsType[*stock.NotLoaded](err); ok {
		return saleState{State: stateNotLoaded, Reason: refused.Reason}
	}
	if err != nil {
		a.Log.DebugContext(ctx, "state of a sale not read", "sale_id", s.ID, "error", err)
		return saleState{State: stateNotLoaded, Reason: reasonUnreachable}
	}
	return saleState{
		State: stateLoaded, Era: string(state.Era), Generation: state.Generation, remaining: state.Remaining,
	}
}

// view shows one sale.
func (a *API) view(ctx context.Context, s sale.Sale) (saleView, error) {
	views, err := a.views(ctx, []sale.Sale{s})
	if err != nil {
		return saleView{}, err
	}
	return views[0], nil
}

// views shows sales. When Redis can't be reached it is asked once, not once per sale.
func (a *API) views(ctx context.Context, sales []sale.Sale) ([]saleView, error) {
	ids := make([]string, len(sales))
	for i, s := range sales {
		ids[i] = s.ID
	}
	counts, err := a.Ledger.ItemCounts(ctx, ids)
	if err != nil {
		return nil, err
	}
	views := make([]saleView, len(sales))
	var state saleState
	for i, s := range sales {
		if state.Reason != reasonUnreachable {
			state = a.stateOf(ctx, s)
		}
		views[i] = viewOf(s, counts[s.ID], state)
	}
	return views, nil
}

func viewOf(s sale.Sale, counts []ledger.ItemTotals, state saleState) saleView {
	s.StartsAt, s.EndsAt = s.StartsAt.UTC(), s.EndsAt.UTC()
	v := saleView{
		Sale: s, Phase: s.Phase(time.Now()), Items: make([]itemView, len(counts)), saleState: state,
		Limits: append([]sale.Limit{}, s.Limits...), RateLimit: s.RateLimit, Regrab: !s.NoRegrab,
	}
	for i, it := range counts {
		v.Items[i] = itemView{
			SKU: it.SKU, Stock: it.Stock, PriceCents: it.PriceCents,
			Granted: it.Granted, Returned: it.Returned, Sold: it.Sold,
		}
		if left, ok := state.remaining[it.SKU]; ok {
			v.Items[i].Remaining = &left
		}
	}
	return v
}
