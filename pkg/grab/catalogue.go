package grab

import (
	"sync"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// catalogue is what this process knows of the sales, fed by a watch.
type catalogue struct {
	sales sync.Map // sale id -> *sale.Sale, never changed once stored
}

func (c *catalogue) get(id string) (*sale.Sale, bool) {
	v, ok := c.sales.Load(id)
	if !ok {
		return nil, false
	}
	s := v.(*sale.Sale)
	return s, s.Status != sale.StatusDraft
}

// Put tells the engine of a sale; one with a lower revision than the known one
// changes nothing.
func (e *Engine) Put(s *sale.Sale) {
	if v, ok := e.catalogue.sales.Load(s.ID); ok && v.(*sale.Sale).Revision > s.Revision {
		return
	}
	e.catalogue.sales.Store(s.ID, s)
	e.Restocked(s.ID)
}

// Forget tells the engine that a sale is gone.
func (e *Engine) Forget(saleID string) { e.catalogue.sales.Delete(saleID) }

// Sale returns what the engine knows of a sale that is not a draft and carries no quota.
func (e *Engine) Sale(saleID string) (*sale.Sale, bool) {
	s, ok := e.catalogue.get(saleID)
	return s, ok && !s.Quota
}

// Restocked drops the sale's sold-out mark: stock may have come back.
func (e *Engine) Restocked(saleID string) {
	e.mu.Lock()
	b := e.batchers[saleID]
	e.mu.Unlock()
	if b != nil {
		b.soldOut.drop()
	}
}

// RestockedAll drops every sold-out mark: a signal may have been missed.
func (e *Engine) RestockedAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.batchers {
		b.soldOut.drop()
	}
}
