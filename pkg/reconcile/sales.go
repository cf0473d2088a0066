package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// saleList is the sales that are loaded, or were. Each audit reads them all; the
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

// read lists all sales but drafts.
func (l *saleList) read(ctx context.Context, from Ledger, now time.Time) ([]sale.Sale, error) {
	var all []sale.Sale
	after := ""
	for {
		page, err := from.ListSales(ctx, after, ledger.PageMax)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if page[i].Status != sale.StatusDraft {
				all = append(all, page[i])
			}
		}
		if len(page) < ledger.PageMax {
			break
		}
		after = page[len(page)-1].ID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sales, l.at = all, now
	return all, nil
}
