package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Status is the state of GRANTS and of its consumer.
type Status struct {
	StreamID int64  // see StreamID
	FirstSeq uint64 // sequence of the first message; LastSeq+1 when there is none
	LastSeq  uint64 // sequence of the last message ever stored, 0 when there was none
	Messages uint64
	Bytes    uint64
	LastTime time.Time // when LastSeq was stored
	Replicas int       // servers that keep the stream
	Purged   bool      // an operator has removed messages

	// Of the consumer; all zero when it does not exist.
	Pending     uint64 // messages not delivered yet; what was just published may be missing
	AckFloor    uint64 // everything up to this sequence is settled
	AckPending  int    // delivered and not settled; those that wait out a Retry count
	Redelivered int    // those of AckPending that were delivered more than once
}

// Info returns the state of GRANTS and of its consumer, for metrics and checks.
func (s *Stream) Info(ctx context.Context) (Status, error) {
	info, err := s.grantsInfo(ctx)
	if err != nil {
		return Status{}, err
	}
	status := Status{
		StreamID: identity(info),
		FirstSeq: info.State.FirstSeq,
		LastSeq:  info.State.LastSeq,
		Messages: info.State.Msgs,
		Bytes:    info.State.Bytes,
		LastTime: info.State.LastTime,
		Replicas: info.Config.Replicas,
		Purged:   purged(info),
	}
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return Status{}, err
	}
	defer cancel()
	consumer, err := s.js.Consumer(ctx, GrantsStream, OrdersConsumer)
	switch {
	case apiCode(err) == jetstream.JSErrCodeConsumerNotFound:
		return status, nil
	case err != nil:
		return Status{}, fmt.Errorf("look up consumer %s: %w", OrdersConsumer, err)
	}
	orders := consumer.CachedInfo()
	status.Pending = orders.NumPending
	status.AckFloor = orders.AckFloor.Stream
	status.AckPending = orders.NumAckPending
	status.Redelivered = orders.NumRedelivered
	return status, nil
}

// purged reports whether messages are missing between the first one the stream ever
// stored and the last.
func purged(info *jetstream.StreamInfo) bool {
	first := max(info.Config.FirstSeq, 1)
	ever := uint64(0)
	if info.State.LastSeq >= first {
		ever = info.State.LastSeq - first + 1
	}
	return info.State.Msgs < ever
}

// StreamID identifies GRANTS: the time of its creation, in Unix nanoseconds. A
// stream that was deleted and made again has another one, and its sequences mean
// other messages.
func (s *Stream) StreamID(ctx context.Context) (int64, error) {
	info, err := s.grantsInfo(ctx)
	if err != nil {
		return 0, err
	}
	return identity(info), nil
}

func identity(info *jetstream.StreamInfo) int64 { return info.Created.UnixNano() }

// TimestampAt returns the stream's time of the message at a sequence of GRANTS, in
// Unix nanoseconds; found is false when there is no message. It tells two messages
// apart that were given the same sequence, because a copy of the stream was restored.
func (s *Stream) TimestampAt(ctx context.Context, seq uint64) (at int64, found bool, err error) {
	if seq == 0 {
		return 0, false, nil
	}
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return 0, false, err
	}
	defer cancel()
	grants, err := s.grantsStream(ctx)
	if err != nil {
		return 0, false, err
	}
	msg, err := grants.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read message %d of stream %s: %w", seq, GrantsStream, err)
	}
	return msg.Time.UnixNano(), true, nil
}

// grantsInfo asks the leader of GRANTS.
func (s *Stream) grantsInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	grants, err := s.grantsStream(ctx)
	if err != nil {
		return nil, err
	}
	info, err := grants.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the state of stream %s: %w", GrantsStream, err)
	}
	return info, nil
}
