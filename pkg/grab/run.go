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
			e.retire()
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

// retire ends the batchers of sales that are over or gone and have nothing under
// way.
func (e *Engine) retire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for id, b := range e.batchers {
		s, known := e.catalogue.get(id)
		if over := !known || s.Phase(now) == sale.PhaseEnded; over && b.ledger.idle() && b.waiting.len() == 0 {
			close(b.retired)
			delete(e.batchers, id)
		}
	}
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
