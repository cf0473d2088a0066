package grab

import (
	"context"
	"errors"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// winner is a ticket and the answer it gets once its batch is in the stream.
type winner struct {
	ticket *ticket
	answer Answer
}

// publish brings a batch into the stream and answers its winners. It frees
// the batch's slot at its end.
func (b *batcher) publish(ctx context.Context, d stock.Decision, winners []winner) {
	b.engine.observe.Unacked(1)
	defer b.engine.observe.Unacked(-1)
	defer func() { <-b.slots }()
	start := time.Now()
	overdue := time.AfterFunc(b.engine.cfg.PublishDeadline, func() {
		b.late.Add(1)
		answerAll(winners, func(a Answer) Answer { a.Outcome = sale.Pending; return a })
		b.refuseWaiting("the order stream does not answer")
	})
	defer func() {
		if !overdue.Stop() {
			b.late.Add(-1)
		}
	}()
	ambiguous, err := b.store(ctx, d.Head, d.Body)
	switch {
	case err == nil:
		b.engine.observe.Published(time.Since(start))
		b.ledger.inStream(d.Head.Number, d.Head.Generation)
		answerAll(winners, func(a Answer) Answer { return a })
	case errors.Is(err, stream.ErrFenced):
		b.fenced(ctx, d.Head, winners, ambiguous)
	default:
		// Stopping: the outbox is left to whoever finds it.
		answerAll(winners, func(a Answer) Answer { a.Outcome = sale.Pending; return a })
		return
	}
	b.wake()
}

func answerAll(winners []winner, turn func(Answer) Answer) {
	for _, w := range winners {
		w.ticket.reply(turn(w.answer))
	}
}

// store publishes until the batch is in the stream (nil), is fenced out
// (stream.ErrFenced), or ctx ends. ambiguous tells that an attempt before the
// last may have stored it.
func (b *batcher) store(ctx context.Context, head sale.BatchHead, body []byte) (ambiguous bool, err error) {
	for attempt := 1; ; attempt++ {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.engine.cfg.PublishDeadline)
		_, err = b.engine.stream.Publish(try, b.saleID, head, body)
		cancel()
		switch {
		case err == nil || errors.Is(err, stream.ErrFenced):
			return ambiguous, err
		case errors.Is(err, stream.ErrBusy) || errors.Is(err, stream.ErrNotSent):
		default:
			ambiguous = true
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			return ambiguous, ctx.Err()
		}
	}
}

// fenced ends a batch that a later generation shut out. Its new grants are void,
// unless an attempt was ambiguous: then the restored state knows, and the client
// asks for its order. (Where a reconciler had published this outbox before its
// fence, the grants are in the stream all the same: whoever repeats the key hears so.)
func (b *batcher) fenced(ctx context.Context, head sale.BatchHead, winners []winner, ambiguous bool) {
	b.engine.log.Warn("batch was fenced out", "sale", b.saleID, "batch", head.ID(), "ambiguous", ambiguous)
	answerAll(winners, func(a Answer) Answer {
		if ambiguous {
			a.Outcome = sale.Pending
			return a
		}
		return notLoaded(stock.ReasonFenced)
	})
	b.engine.observe.NotLoaded(stock.ReasonFenced)
	b.ledger.fenced(head.Number, head.Generation)
	trim, cancel := context.WithTimeout(context.WithoutCancel(ctx), trimTimeout)
	defer cancel()
	_, err := b.engine.stock.Trim(trim, stock.Trim{SaleID: b.saleID, Process: head.Process, Through: head.Number})
	if err != nil {
		b.engine.log.Debug("outbox of a fenced batch not trimmed", "sale", b.saleID, "error", err)
	}
	b.askReconcile(stock.ReasonFenced)
}

func (b *batcher) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// recover ends the doubt about a batch whose answer was lost: it bars the
// number, publishes what the outbox holds, and trims it. It returns when that is done
// or ctx ends; until then nothing is sold.
func (b *batcher) recover(ctx context.Context, number uint64) {
	b.recovering.Store(true)
	defer b.recovering.Store(false)
	began := time.Now()
	for attempt := 1; ; attempt++ {
		// Somebody may have queued just before the mark was set.
		b.refuseWaiting("recovering from a lost answer of the stock store")
		n, err := b.publishOutbox(ctx, number)
		if err == nil {
			b.engine.observe.Recovered(n)
			b.ledger.settle(number)
			b.engine.log.Info("recovered from a lost answer", "sale", b.saleID, "batches", n, "attempt", attempt, "took", time.Since(began))
			return
		}
		b.engine.log.Warn("recovery of a lost answer failed", "sale", b.saleID, "attempt", attempt, "error", err)
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			return
		}
	}
}

// publishOutbox bars all batches through number and brings those that Redis
// did decide into the stream. Batches still being published come along; the
// stream knows them by their id.
func (b *batcher) publishOutbox(ctx context.Context, number uint64) (published int, err error) {
	bar := stock.Trim{SaleID: b.saleID, Process: b.engine.cfg.Process, Bar: number}
	if _, err := b.engine.stock.Trim(ctx, bar); err != nil {
		return 0, err
	}
	for {
		entries, err := b.engine.stock.Outbox(ctx, b.saleID, b.engine.cfg.Process, outboxPage)
		if err != nil || len(entries) == 0 {
			return published, err
		}
		for _, body := range entries {
			head, _, err := sale.ParseHead(body)
			if err != nil {
				return published, err
			}
			_, err = b.store(ctx, head, body)
			if err != nil && !errors.Is(err, stream.ErrFenced) {
				return published, err
			}
			_, trimErr := b.engine.stock.Trim(ctx, stock.Trim{
				SaleID: b.saleID, Process: head.Process, Through: head.Number, Durable: err == nil,
			})
			if trimErr != nil {
				return published, trimErr
			}
			published++
		}
	}
}
