package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// Outboxes is what a relay needs of Redis. A *stock.Store has it.
type Outboxes interface {
	Outboxes(ctx context.Context, saleID string) (map[string]uint64, error)
	Outbox(ctx context.Context, saleID, process string, limit int64) ([][]byte, error)
	Trim(ctx context.Context, t stock.Trim) (left int64, err error)
	Alive(ctx context.Context, process string) (bool, error)
}

// Publisher is what a relay needs of JetStream. A *stream.Stream has it.
type Publisher interface {
	Publish(ctx context.Context, saleID string, head sale.BatchHead, body []byte) (seq uint64, err error)
}

// Relay brings into the stream what grab processes left in their outboxes.
// Publishing a batch twice is harmless, so any number of relays may run.
type Relay struct {
	outboxes  Outboxes
	publisher Publisher
	page      int64
}

// NewRelay returns a relay that reads page batches at a time.
func NewRelay(outboxes Outboxes, publisher Publisher, page int) *Relay {
	return &Relay{outboxes: outboxes, publisher: publisher, page: int64(page)}
}

// Relayed counts what became of outbox batches.
type Relayed struct {
	Published int64 `json:"published"` // they are in the stream
	Fenced    int64 `json:"fenced"`    // their generation is over: their grants are void
	// Samples are order ids of the first fenced grants.
	Samples []string `json:"fenced_orders,omitempty"`
}

func (a *Relayed) add(b Relayed) {
	a.Published += b.Published
	a.Fenced += b.Fenced
	a.Samples = append(a.Samples, b.Samples[:min(len(b.Samples), maxSamples-len(a.Samples))]...)
}

// Orphans publishes the outboxes of processes that are gone and forgets them. Live
// processes publish their own.
func (r *Relay) Orphans(ctx context.Context, saleID string) (Relayed, error) {
	return r.each(ctx, saleID, func(process string) (bool, error) {
		alive, err := r.outboxes.Alive(ctx, process)
		return !alive, err
	})
}

// All publishes every outbox of a sale, those of live processes too. The run that
// closes a sale calls it: what is not in the stream before the fence is void.
func (r *Relay) All(ctx context.Context, saleID string) (Relayed, error) {
	return r.each(ctx, saleID, func(string) (bool, error) { return true, nil })
}

func (r *Relay) each(ctx context.Context, saleID string, wanted func(process string) (bool, error)) (Relayed, error) {
	var total Relayed
	processes, err := r.outboxes.Outboxes(ctx, saleID)
	if err != nil {
		return total, err
	}
	for process := range processes {
		ok, err := wanted(process)
		if err != nil {
			return total, err
		}
		if !ok {
			continue
		}
		one, err := r.Process(ctx, saleID, process)
		total.add(one)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Process publishes the outbox of one process, oldest batch first, and forgets
// the process when it is gone and its outbox empty.
func (r *Relay) Process(ctx context.Context, saleID, process string) (Relayed, error) {
	var done Relayed
	trim := stock.Trim{SaleID: saleID, Process: process}
	for {
		batches, err := r.outboxes.Outbox(ctx, saleID, process, r.page)
		if err != nil {
			return done, err
		}
		if len(batches) == 0 {
			break
		}
		for _, body := range batches {
			head, records, err := sale.ParseHead(body)
			if err != nil {
				return done, fmt.Errorf("outbox of process %s in sale %s: %w", process, saleID, err)
			}
			trim.Through = head.Number
			trim.Durable, err = r.publish(ctx, saleID, head, body)
			if err != nil {
				return done, err
			}
			if _, err := r.outboxes.Trim(ctx, trim); err != nil {
				return done, err
			}
			done.count(trim.Durable, records)
		}
	}
	alive, err := r.outboxes.Alive(ctx, process)
	if err != nil || alive {
		return done, err
	}
	_, err = r.outboxes.Trim(ctx, stock.Trim{SaleID: saleID, Process: process, Through: trim.Through, Forget: true})
	return done, err
}

func (a *Relayed) count(durable bool, records []byte) {
	if durable {
		a.Published++
		return
	}
	a.Fenced++
	for len(records) > 0 && len(a.Samples) < maxSamples {
		g, rest, err := sale.DecodeGrant(records)
		if err != nil {
			return // a sample is a courtesy; the batch is void all the same
		}
		a.Samples = append(a.Samples, g.OrderID)
		records = rest
	}
}

// publish brings one batch into the stream; durable is false when it was fenced out.
func (r *Relay) publish(ctx context.Context, saleID string, head sale.BatchHead, body []byte) (durable bool, err error) {
	for attempt := 1; attempt <= publishAttempts; attempt++ {
		_, err = r.publisher.Publish(ctx, saleID, head, body)
		if err == nil {
			return true, nil
		}
		if errors.Is(err, stream.ErrFenced) {
			return false, nil
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			break
		}
	}
	return false, fmt.Errorf("relay outbox of process %s: %w", head.Process, err)
}
