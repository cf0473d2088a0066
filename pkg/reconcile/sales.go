package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// saleList is the sales that are loaded, or were, and behind them the quotas. Each audit reads them all; the
// relay, which looks more often, makes do with the list of the last one.
type saleList struct {
	mu    sync.Mutex
	sales []sale.Sale
	at    time.Time
}

// recent returns a list that is at most age old.
func (l *saleList) recent(ctx context.Context, from Ledger, now time.Time, age time.Duration) ([]sale.Sale, error) {
	l.mu.Lock()
	sales, at := l.sales, l.at
	l.mu.Unlock()
	if !at.IsZero() && now.Sub(at) < age {
		return sales, nil
	}
	return l.read(ctx, from, now)
}

// loaded brings a sale that has just been loaded into the list: what is granted of it
// from now on is the relay's business before the next audit. Quotas the relay leaves alone.
func (l *saleList) loaded(s sale.Sale) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Quota || slices.ContainsFunc(l.sales, func(known sale.Sale) bool { return known.ID == s.ID }) {
		return
	}
	l.sales = append(slices.Clip(l.sales), s)
}

// read lists all sales but drafts, and all quotas.
func (l *saleList) read(ctx context.Context, from Ledger, now time.Time) ([]sale.Sale, error) {
	sales, err := allPages(ctx, from.ListSales)
	if err != nil {
		return nil, err
	}
	quotas, err := allPages(ctx, from.ListQuotas)
	if err != nil {
		return nil, err
	}
	all := append(slices.DeleteFunc(sales, func(s sale.Sale) bool { return s.Status == sale.StatusDraft }), quotas...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sales, l.at = all, now
	return all, nil
}

func allPages(ctx context.Context, list func(ctx context.Context, after string, limit int) ([]sale.Sale, error)) ([]sale.Sale, error) {
	var all []sale.Sale
	after := ""
	for {
		page, err := list(ctx, after, ledger.PageMax)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < ledger.PageMax {
			return all, nil
		}
		after = page[len(page)-1].ID
	}
}
