package grab

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// maxOwners bounds the winners a mark remembers. Above it there is no mark:
// the script refuses quickly too.
const maxOwners = 100_000

// markTimeout bounds the reading of a sale's winners.
const markTimeout = 5 * time.Second

// soldOut lets a process refuse without asking Redis, for a short while. A winner
// who comes again must not be refused: the mark knows the owner tags of all who
// won, and lets those through to Redis. It is dropped by signals before and after
// stock comes back; where both are lost, it may refuse a winner of that stock
// until its TTL ends.
type soldOut struct {
	mark    atomic.Pointer[mark]
	loading atomic.Bool
	drops   atomic.Int64
}

// mark is never changed once it stands.
type mark struct {
	generation int64
	applied    int64
	skus       map[string]bool
	owners     map[uint32]struct{}
	until      time.Time
}

// refuses reports whether the mark answers a grab, and with which SKU.
func (s *soldOut) refuses(now time.Time, g *sale.Grant) (sku string, yes bool) {
	m := s.mark.Load()
	if m == nil || !now.Before(m.until) {
		return "", false
	}
	for _, l := range g.Lines {
		if m.skus[l.SKU] {
			_, owner := m.owners[sale.OwnerTag(g.User)]
			return l.SKU, !owner
		}
	}
	return "", false
}

// drop takes the mark away at once.
func (s *soldOut) drop() {
	s.drops.Add(1)
	s.mark.Store(nil)
}

// seen hears that Redis refused for want of a SKU. With none left at all it
// renews the mark, or reads the winners for a new one.
func (s *soldOut) seen(b *batcher, d stock.Decision, sku string) {
	if d.Remaining[sku] != 0 || b.engine.cfg.SoldOutTTL < 0 {
		return
	}
	m := s.mark.Load()
	now := b.engine.now()
	if m != nil && m.generation == d.Head.Generation && m.applied == d.Applied && m.skus[sku] {
		if now.After(m.until) {
			renewed := *m
			renewed.until = now.Add(b.engine.cfg.SoldOutTTL)
			s.mark.CompareAndSwap(m, &renewed)
		}
		return
	}
	if s.loading.CompareAndSwap(false, true) {
		b.engine.background(func(ctx context.Context) {
			defer s.loading.Store(false)
			s.load(ctx, b, d, sku)
		})
	}
}

// load reads who won and sets the mark, unless stock came back meanwhile.
func (s *soldOut) load(ctx context.Context, b *batcher, d stock.Decision, sku string) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	drops := s.drops.Load()
	next := &mark{
		generation: d.Head.Generation, applied: d.Applied,
		skus: map[string]bool{sku: true}, owners: make(map[uint32]struct{}),
	}
	if m := s.mark.Load(); m != nil && m.generation == next.generation && m.applied == next.applied {
		for known := range m.skus {
			next.skus[known] = true
		}
	}
	few, err := b.engine.stock.Owners(ctx, b.saleID, maxOwners, func(orderID string) {
		if _, owner, ok := sale.ParseOrderID(orderID); ok {
			next.owners[owner] = struct{}{}
		}
	})
	if err != nil || !few {
		return
	}
	// The winners were read over a while: they are complete only if nothing
	// came back in between.
	st, err := b.engine.stock.State(ctx, b.saleID, []string{sku})
	if err != nil || st.Generation != next.generation || st.Applied != next.applied || st.Remaining[sku] != 0 {
		return
	}
	next.until = b.engine.now().Add(b.engine.cfg.SoldOutTTL)
	s.mark.Store(next)
	if s.drops.Load() != drops {
		s.drop()
	}
}
