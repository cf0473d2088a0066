package grab

import (
	"context"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Run holds the process's lease and keeps the engine selling until ctx ends.
// It returns when every script call and publication in hand has ended: winners
// have heard "won" or "pending".
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.running = ctx
	e.mu.Unlock()
	e.hold(ctx)
	tick := time.NewTicker(e.cfg.LeaseTTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.hold(ctx)
			e.askToRest()
		case <-ctx.Done():
			e.mu.Lock()
			e.stopped = true
			e.mu.Unlock()
			e.work.Wait()
			e.leave()
			return nil
		}
	}
}

// Ready reports whether the engine runs.
func (e *Engine) Ready() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running != nil && !e.stopped
}

// hold renews the lease. A failure is no danger: at worst another publishes our
// outbox too.
func (e *Engine) hold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if err := e.stock.Hold(ctx, e.cfg.Process, e.cfg.LeaseTTL); err != nil && ctx.Err() == nil {
		e.log.Warn("process lease not renewed", "error", err)
	}
}

// leave gives the lease up, so that what is left on an outbox is found at once.
// Where that fails, it is found when the lease has run out.
func (e *Engine) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	if err := e.stock.Leave(ctx, e.cfg.Process); err != nil {
		e.log.Warn("process lease not given up", "error", err)
	}
}

// batcher returns the sale's batcher, started if need be.
func (e *Engine) batcher(saleID string) (*batcher, error) {
	e.mu.RLock()
	b, ok := e.batchers[saleID]
	ok = ok && !e.stopped
	e.mu.RUnlock()
	if ok {
		return b, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil || e.stopped {
		return nil, ErrStopped
	}
	if b, ok = e.batchers[saleID]; !ok {
		b = e.newBatcher(saleID)
		e.batchers[saleID] = b
		e.observe.Selling(1)
		ctx := e.running
		e.work.Go(func() { b.run(ctx) })
	}
	return b, nil
}

// Selling is how many sales have a batcher.
func (e *Engine) Selling() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.batchers)
}

// askToRest asks the batchers whose sale is over, gone, or not asked for lately to end.
func (e *Engine) askToRest() {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, b := range e.batchers {
		if over, idle := e.needless(b); over || idle {
			select {
			case b.rest <- struct{}{}:
			default: // it was asked already
			}
		}
	}
}

// needless reports whether a batcher's sale is over or gone, and whether nobody has
// asked for it lately.
func (e *Engine) needless(b *batcher) (over, idle bool) {
	s, known := e.catalogue.get(b.saleID)
	over = !known || s.Phase(e.now()) == sale.PhaseEnded
	return over, time.Since(time.Unix(0, b.used.Load())) > e.cfg.BatcherIdle
}

// retire ends a batcher that is still needless and has nothing under way; its run calls
// it, between two batches. What was fenced out keeps an idle one, because the batcher
// after it would tell of all earlier numbers that they are durable; of a sale that is
// over nobody asks.
func (e *Engine) retire(b *batcher) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	over, idle := e.needless(b)
	atRest := (over && b.ledger.idle()) || (idle && b.ledger.settled())
	if !atRest || !b.waiting.close() {
		return false
	}
	delete(e.batchers, b.saleID)
	e.observe.Selling(-1)
	e.numbered = max(e.numbered, b.ledger.given())
	return true
}

// background runs fn until it ends or the engine stops.
func (e *Engine) background(fn func(context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil || e.stopped {
		return
	}
	ctx := e.running
	e.work.Go(func() { fn(ctx) })
}
