package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoMessage says that GRANTS has no message at the sequence or beyond.
var ErrNoMessage = errors.New("no such message in the stream")

// NextSeq asks the leader for the sequence of the first message at or beyond one,
// of any sale: between them are only messages that were purged. It answers ErrNoMessage.
func (s *Stream) NextSeq(ctx context.Context, seq uint64) (uint64, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	grants, err := s.grantsStream(ctx)
	if err != nil {
		return 0, err
	}
	msg, err := grants.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, ErrNoMessage
	case err != nil:
		return 0, fmt.Errorf("look for the message at %d: %w", seq, err)
	}
	return msg.Sequence, nil
}

// rewindAttempts bounds the tries to be faster than a worker that finds its
// consumer gone and makes it again.
const rewindAttempts = 5

// RewindOrders has the order workers read GRANTS again from a sequence on, what is
// settled too. What they have in hand comes again.
func (s *Stream) RewindOrders(ctx context.Context, seq uint64) error {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	want, err := s.ordersConsumer(ctx)
	if err != nil {
		return err
	}
	want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(seq, 1)
	for range rewindAttempts {
		err = s.js.DeleteConsumer(ctx, GrantsStream, OrdersConsumer)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("delete consumer %s: %w", OrdersConsumer, err)
		}
		if _, err = s.js.CreateConsumer(ctx, GrantsStream, want); !errors.Is(err, jetstream.ErrConsumerExists) {
			break
		}
	}
	if err != nil {
		return settingsError("consumer "+OrdersConsumer, err)
	}
	return nil
}
