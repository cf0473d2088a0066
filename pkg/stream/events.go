package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Event is what happened to an order, for the stream ORDERS.
type Event struct {
	ID   string // the same however often it is published; the server drops repeats of two minutes
	Kind sale.EventKind
	Body []byte // the JSON of a sale.Event
}

// PublishEvents stores events, Config.EventsInFlight of them at a time. stored says of
// each whether it is on disk; err is the first failure, nil when all are. An event that
// failed may be stored all the same: publish it again.
//
// Events that are stored stand in the order in which they were given, but one that
// failed is overtaken by those after it: where order matters, give the next
// event in the next call.
func (s *Stream) PublishEvents(ctx context.Context, events []Event) (stored []bool, err error) {
	stored = make([]bool, len(events))
	if !s.nc.IsConnected() {
		return stored, fmt.Errorf("publish events: %w", ErrNotConnected)
	}
	answers := make([]jetstream.PubAckFuture, len(events))
	var failed error
	settle := func(i int) {
		if answers[i] == nil {
			return
		}
		why := await(ctx, answers[i])
		if stored[i] = why == nil; why != nil && failed == nil {
			failed = fmt.Errorf("publish event %s: %w", events[i].ID, why)
		}
	}
	sent := 0
	for ; sent < len(events) && failed == nil; sent++ {
		if sent >= s.cfg.EventsInFlight {
			settle(sent - s.cfg.EventsInFlight)
		}
		e := &events[sent]
		msg := nats.NewMsg(eventsPrefix + string(e.Kind))
		msg.Data = e.Body
		// A stream that is missing fails at once; the caller tries again.
		answers[sent], err = s.js.PublishMsgAsync(msg,
			jetstream.WithMsgID(e.ID), jetstream.WithExpectStream(EventsStream), jetstream.WithRetryAttempts(0))
		if err != nil && failed == nil {
			failed = fmt.Errorf("publish event %s: %w", e.ID, err)
		}
	}
	for i := max(0, sent-s.cfg.EventsInFlight); i < sent; i++ {
		settle(i)
	}
	return stored, failed
}

// await waits for the server's answer, no longer than Config.PublishTimeout: the
// connection was told to give up then.
func await(ctx context.Context, answer jetstream.PubAckFuture) error {
	select {
	case <-answer.Ok():
		return nil
	case err := <-answer.Err():
		if err == nil {
			err = errors.New("no answer")
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
