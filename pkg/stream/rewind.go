package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoMessage says that GRANTS has no message at a sequence or beyond.
var ErrNoMessage = errors.New("no such message in the stream")

// Place is where a message stands in GRANTS, and when it was stored, in Unix ns.
// Together they name it even when a stream was restored from an older copy, which
// gives the same sequences to other messages.
type Place struct {
	Seq uint64
	At  int64
}

// NextPlace asks the leader for the first message at or beyond a sequence, of
// any sale. It answers ErrNoMessage.
func (s *Stream) NextPlace(ctx context.Context, seq uint64) (Place, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return Place{}, err
	}
	defer cancel()
	grants, err := s.grantsStream(ctx)
	if err != nil {
		return Place{}, err
	}
	msg, err := grants.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Place{}, ErrNoMessage
	case err != nil:
		return Place{}, fmt.Errorf("look for the message at %d: %w", seq, err)
	}
	return Place{Seq: msg.Sequence, At: msg.Time.UnixNano()}, nil
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
