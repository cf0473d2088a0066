package grab

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/redis/go-redis/v9"
)

// batcher sells one sale for one process.
type batcher struct {
	engine  *Engine
	saleID  string
	waiting *queue
	// slots holds one token per batch that may still be waiting for the stream.
	slots   chan struct{}
	soldOut soldOut
	ledger  numbers
	// While a batch is past its publish deadline or in doubt, nothing may be
	// granted: it could not be made durable.
	late       atomic.Int64
	recovering atomic.Bool
	asking     atomic.Bool   // a request for a reconcile is under way
	asked      atomic.Int64  // Unix ns of the last one
	ready      chan struct{} // a publication ended: look at the outbox again
	trimAt     time.Time     // when the outbox is to be trimmed; zero when it needs none
	used       atomic.Int64  // Unix ns of the last batch
	rest       chan struct{} // a token asks run to look whether it may end
	// ended is set before run refuses who still waits.
	ended        atomic.Bool
	publications sync.WaitGroup
}

// newBatcher counts its batches on from those of every batcher before it: a number of
// a sale is never given out twice by one process.
func (e *Engine) newBatcher(saleID string) *batcher {
	b := &batcher{
		engine: e, saleID: saleID,
		waiting: newQueue(e.cfg.QueueMax),
		slots:   make(chan struct{}, e.cfg.UnackedBatches),
		ready:   make(chan struct{}, 1),
		rest:    make(chan struct{}, 1),
	}
	b.ledger.after(e.numbered)
	b.used.Store(time.Now().UnixNano())
	return b
}

// queue takes a ticket in, or says why not.
func (b *batcher) queue(t *ticket) (Answer, bool) {
	if b.late.Load() > 0 {
		return unavailable("the order stream does not answer"), false
	}
	if b.recovering.Load() {
		return unavailable("recovering from a lost answer of the stock store"), false
	}
	if !b.engine.stream.Reachable() {
		return unavailable("the order stream can't be reached"), false
	}
	if refused := b.waiting.put(t); refused != "" {
		return unavailable(refused), false
	}
	b.engine.observe.Queue(1)
	if b.ended.Load() { // too late for run: it may have looked before t was there
		b.refuseWaiting(stopping)
	}
	return Answer{}, true
}

// run sells until ctx ends or the batcher is retired, then answers whoever still
// waits. A retired one has nobody waiting.
func (b *batcher) run(ctx context.Context) {
	defer func() {
		b.ended.Store(true)
		b.refuseWaiting(stopping)
		b.publications.Wait()
	}()
	for ctx.Err() == nil {
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		tickets := b.collect(ctx)
		if tickets == nil {
			return
		}
		if published := b.decide(ctx, tickets); !published {
			<-b.slots
		}
	}
}

func (b *batcher) refuseWaiting(why string) {
	for {
		refused := b.waiting.take(b.engine.cfg.BatchMax, func(*ticket) bool { return true })
		if len(refused) == 0 {
			return
		}
		b.engine.observe.Queue(-len(refused))
		reply(refused, unavailable(why))
	}
}

// collect waits for a ticket and takes what queued with it. It returns nil
// when ctx ends, or when the batcher is retired.
func (b *batcher) collect(ctx context.Context) []*ticket {
	for {
		if tickets := b.drain(); len(tickets) > 0 {
			return tickets
		}
		idle := b.trimWhenDue(ctx)
		select {
		case <-b.waiting.filled:
		case <-b.ready:
		case <-idle:
		case <-b.rest:
			b.trim(ctx)
			if b.engine.retire(b) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// drain takes up to a batch of waiting tickets, without those whose client left.
func (b *batcher) drain() []*ticket {
	size, longest := 0, b.longestRecord()
	for {
		taken := b.waiting.take(b.engine.cfg.BatchMax, func(t *ticket) bool {
			size += max(len(t.record), longest)
			return size <= batchBytes
		})
		if len(taken) == 0 {
			return nil
		}
		b.engine.observe.Queue(-len(taken))
		here := slices.DeleteFunc(taken, func(t *ticket) bool {
			left := t.ctx.Err() != nil
			if left {
				t.reply(unavailable("the client left"))
			}
			return left
		})
		if len(here) > 0 {
			return here
		}
		size = 0
	}
}

// longestRecord bounds the record of any grant of the sale. A replay publishes the
// record of the grant that was made, whatever its repetition asks for.
func (b *batcher) longestRecord() int {
	const head, line = 32 + sale.MaxOrderIDLen + sale.MaxUserLen + sale.MaxKeyLen + sale.MaxIPLen, 20
	s, ok := b.engine.catalogue.get(b.saleID)
	if !ok {
		return head
	}
	sku := 0
	for i := range s.Items {
		sku = max(sku, len(s.Items[i].SKU))
	}
	return head + min(len(s.Items), sale.MaxLines)*(sku+line)
}

// decide asks Redis about a batch and answers what needs no stream. It reports
// whether a publication was started that will free the slot.
func (b *batcher) decide(ctx context.Context, tickets []*ticket) (published bool) {
	s, ok := b.engine.catalogue.get(b.saleID)
	if !ok {
		reply(tickets, unavailable("the sale is gone"))
		return false
	}
	number, acked := b.ledger.next()
	batch := stock.Batch{
		SaleID: b.saleID, PerUser: s.PerUserLimit, Process: b.engine.cfg.Process, Number: number, Acked: acked,
		PerSecond: s.RateLimit, Limits: s.Limits, Zone: s.Location(),
		Asks: make([]stock.Ask, len(tickets)),
	}
	for i, t := range tickets {
		batch.Asks[i] = t.ask()
	}
	start := time.Now()
	b.used.Store(start.UnixNano())
	// Not ctx: stopping must not cut a call whose answer decides about grants.
	d, err := b.engine.stock.Grab(context.WithoutCancel(ctx), batch)
	b.engine.observe.Batch(len(tickets), time.Since(start))
	if err != nil {
		b.failed(ctx, number, tickets, err)
		return false
	}
	winners := b.answer(s, tickets, d)
	if d.Body == nil {
		b.ledger.settle(number)
		return false
	}
	b.ledger.trim(acked) // it rode on this call
	b.publications.Go(func() { b.publish(ctx, d, winners) })
	return true
}

func reply(tickets []*ticket, a Answer) {
	for _, t := range tickets {
		t.reply(a)
	}
}

// failed answers a batch that Redis did not decide, or whose answer was lost.
func (b *batcher) failed(ctx context.Context, number uint64, tickets []*ticket, err error) {
	var refused *stock.NotLoaded
	switch {
	case errors.As(err, &refused):
		b.ledger.settle(number)
		b.engine.observe.NotLoaded(refused.Reason)
		b.soldOut.drop()
		reply(tickets, notLoaded(refused.Reason))
		b.askReconcile(refused.Reason)
	case neverSent(err):
		b.ledger.settle(number)
		reply(tickets, unavailable("the stock store can't be reached"))
	default:
		b.engine.log.Warn("answer of a grab batch was lost", "sale", b.saleID, "number", number, "error", err)
		reply(tickets, unavailable("the stock store did not answer"))
		b.recover(ctx, number)
	}
}

// neverSent reports whether Redis can't have seen the call.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, stock.ErrBatch) || (errors.As(err, &op) && op.Op == "dial")
}

// answer replies to everyone whose answer needs no stream and returns the
// rest: per ticket, the answer it gets once the batch is in the stream.
func (b *batcher) answer(s *sale.Sale, tickets []*ticket, d stock.Decision) []winner {
	winners := make([]winner, 0, len(tickets))
	for i, t := range tickets {
		a := d.Answers[i]
		left := quotaLeft(s, a.Used)
		switch a.Code {
		case stock.CodeWon:
			won := granted(sale.Won, &t.grant, false)
			won.Remaining = left
			winners = append(winners, winner{t, won})
		case stock.CodeReplayed:
			g, _, err := sale.DecodeGrant(a.Replay.Record)
			if err != nil {
				b.engine.log.Error("stored grant can't be read", "sale", b.saleID, "order", t.grant.OrderID, "error", err)
				t.reply(unavailable("the stored grant can't be read"))
				continue
			}
			again := granted(sale.Won, &g, true)
			again.Remaining = left
			if a.Replay.Restored {
				t.reply(again) // restored: durable by construction
			} else {
				winners = append(winners, winner{t, again})
			}
		case stock.CodeAlreadyGrabbed:
			t.reply(Answer{Outcome: sale.AlreadyGrabbed, OrderID: a.OrderID})
		case stock.CodeLimit:
			t.reply(Answer{Outcome: sale.LimitExceeded, Limit: sale.LimitPerUser})
		case stock.CodeCount:
			t.reply(Answer{Outcome: sale.LimitExceeded, Limit: a.Limit, Remaining: left})
		case stock.CodeThrottled:
			t.reply(Answer{Outcome: sale.RateLimited, Policy: PolicySale, Retry: a.Wait})
		case stock.CodeSoldOut:
			b.soldOut.seen(b, d, a.SKU)
			t.reply(Answer{Outcome: sale.SoldOut, SKU: a.SKU, Left: d.Remaining[a.SKU]})
		}
	}
	return winners
}

// trimWhenDue trims the outbox once it has waited long enough for a winning call
// to do it, and returns when to look again; nil when there is nothing to trim.
func (b *batcher) trimWhenDue(ctx context.Context) <-chan time.Time {
	if _, ok := b.ledger.untrimmed(); !ok {
		b.trimAt = time.Time{}
		return nil
	}
	now := time.Now()
	if b.trimAt.IsZero() {
		b.trimAt = now.Add(trimDelay)
	}
	if !now.Before(b.trimAt) {
		b.trim(ctx)
		b.trimAt = now.Add(trimDelay)
	}
	return time.After(b.trimAt.Sub(now))
}

// trim takes settled batches off the outbox when no call comes along to do it.
func (b *batcher) trim(ctx context.Context) {
	through, ok := b.ledger.untrimmed()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	_, err := b.engine.stock.Trim(ctx, stock.Trim{
		SaleID: b.saleID, Process: b.engine.cfg.Process, Through: through, Durable: true,
	})
	if err != nil {
		// The batches are in the stream; whoever finds them publishes duplicates.
		b.engine.log.Debug("outbox not trimmed", "sale", b.saleID, "error", err)
		return
	}
	b.ledger.trim(through)
}

// askReconcile asks for a restore: one request at a time, at most one per
// askEvery.
func (b *batcher) askReconcile(reason string) {
	now := time.Now().UnixNano()
	if now-b.asked.Load() < int64(askEvery) || !b.asking.CompareAndSwap(false, true) {
		return
	}
	b.asked.Store(now)
	b.engine.background(func(ctx context.Context) {
		defer b.asking.Store(false)
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if _, err := b.engine.stream.AskReconcile(ctx, b.saleID, reason); err != nil {
			b.engine.log.Warn("no reconcile", "sale", b.saleID, "reason", reason, "error", err)
		}
	})
}
