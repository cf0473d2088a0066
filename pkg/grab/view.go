package grab

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// viewTTL is how long the remaining units of the public view may be old:
// thousands look, Redis answers five times a second.
const viewTTL = 200 * time.Millisecond

// viewTimeout bounds the look into Redis.
const viewTimeout = time.Second

type saleBody struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Status   sale.Phase `json:"status"`
	StartsAt time.Time  `json:"starts_at"`
	EndsAt   time.Time  `json:"ends_at"`
	Items    []itemBody `json:"items"`
}

type itemBody struct {
	SKU        string `json:"sku"`
	PriceCents int64  `json:"price_cents"`
	// Remaining is null while the sale is not loaded; -1 is unlimited.
	Remaining *int64 `json:"remaining"`
}

func (s *Service) getSale(w http.ResponseWriter, r *http.Request) {
	def, problem := s.sale(r.PathValue("sale_id"))
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	remaining, err := s.views.remaining(r.Context(), s.engine.stock, def)
	if err != nil {
		s.log.WarnContext(r.Context(), "remaining units not read", "sale", def.ID, "error", err)
	}
	body := saleBody{
		ID: def.ID, Name: def.Name, Status: def.Phase(time.Now()),
		StartsAt: def.StartsAt.UTC(), EndsAt: def.EndsAt.UTC(), Items: make([]itemBody, len(def.Items)),
	}
	for i, it := range def.Items {
		body.Items[i] = itemBody{SKU: it.SKU, PriceCents: it.PriceCents}
		if left, ok := remaining[it.SKU]; ok {
			body.Items[i].Remaining = &left
		}
	}
	web.Write(w, http.StatusOK, body)
}

// views keeps the last look at each sale.
type views struct {
	sales sync.Map // sale id -> *view
}

type view struct {
	mu        sync.Mutex
	until     time.Time
	remaining map[string]int64 // nil while the sale is not loaded
	err       error
}

// remaining returns the units left per SKU, at most viewTTL old; nil while the
// sale is not loaded.
func (v *views) remaining(ctx context.Context, st Stock, def *sale.Sale) (map[string]int64, error) {
	got, _ := v.sales.LoadOrStore(def.ID, &view{})
	one := got.(*view)
	one.mu.Lock()
	defer one.mu.Unlock()
	if time.Now().Before(one.until) {
		return one.remaining, one.err
	}
	skus := make([]string, len(def.Items))
	for i, it := range def.Items {
		skus[i] = it.SKU
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), viewTimeout)
	defer cancel()
	state, err := st.State(ctx, def.ID, skus)
	if _, notLoaded := errors.AsType[*stock.NotLoaded](err); notLoaded {
		err = nil
	}
	one.remaining, one.err, one.until = state.Remaining, err, time.Now().Add(viewTTL)
	return one.remaining, one.err
}
