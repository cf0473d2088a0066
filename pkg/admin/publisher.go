package admin

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// publishPage is how many sales the publisher reads at a time.
const publishPage = 200

// publisher repairs the catalogue: a crash between ledger and catalogue leaves a
// change of a sale unpublished, and a catalogue that was lost is empty.
type publisher struct {
	ledger   SaleLedger
	stream   Stream
	watched  *revisions
	interval time.Duration
	log      *slog.Logger
}

// published counts what one look did.
type published struct {
	Looked    int // sales that are no drafts
	Published int // those of them whose definition was missing or old
}

// run looks at once and then every interval until ctx ends.
func (p *publisher) run(ctx context.Context) {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	for {
		done, err := p.runOnce(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			p.log.WarnContext(ctx, "sales not published", "error", err)
		case done.Published > 0:
			p.log.InfoContext(ctx, "sales published that the catalogue did not have", "looked", done.Looked, "published", done.Published)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// runOnce publishes every sale of which the catalogue has no or an older revision.
// What the watch does not know yet is published needlessly, which is harmless.
func (p *publisher) runOnce(ctx context.Context) (published, error) {
	var done published
	for _, list := range []func(context.Context, string, int) ([]sale.Sale, error){p.ledger.ListSales, p.ledger.ListQuotas} {
		if err := p.publishMissing(ctx, list, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (p *publisher) publishMissing(ctx context.Context, list func(context.Context, string, int) ([]sale.Sale, error), done *published) error {
	after := ""
	for {
		page, err := list(ctx, after, publishPage)
		if err != nil {
			return err
		}
		for i := range page {
			s := &page[i]
			after = s.ID
			if s.Status == sale.StatusDraft {
				continue
			}
			done.Looked++
			if p.watched.has(s.ID, s.Revision) {
				continue
			}
			if err := p.stream.PutSale(ctx, s); err != nil {
				return fmt.Errorf("publish sales: %w", err)
			}
			done.Published++
		}
		if len(page) < publishPage {
			return nil
		}
	}
}

// revisions is what a watch of the catalogue has told: a sale's revision there.
type revisions struct {
	mu     sync.Mutex
	bySale map[string]int64
}

// take is for stream.WatchSales.
func (v *revisions) take(def *sale.Sale, deletedID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if def == nil {
		delete(v.bySale, deletedID)
		return
	}
	v.bySale[def.ID] = def.Revision
}

func (v *revisions) has(saleID string, revision int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	have, known := v.bySale[saleID]
	return known && have >= revision
}
