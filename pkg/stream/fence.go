package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/nats-io/nats.go/jetstream"
)

// Fence is the beginning of a generation of a sale. The zero value says that
// there has been none.
type Fence struct {
	Generation int64
	Seq        uint64 // its sequence in GRANTS
}

// fenceBody is a fence as it stands in the stream.
type fenceBody struct {
	Generation int64 `json:"generation"`
	// Token is unique per call of BeginGeneration: it tells our own fence from
	// another's when the answer to the publish was lost.
	Token string `json:"token"`
}

// LastFence returns the last fence of a sale, the zero Fence when there is none.
func (s *Stream) LastFence(ctx context.Context, saleID string) (Fence, error) {
	fence, _, err := s.lastFence(ctx, saleID)
	return fence, err
}

func (s *Stream) lastFence(ctx context.Context, saleID string) (Fence, string, error) {
	msg, err := s.lastMessage(ctx, fenceSubject(saleID))
	if err != nil || msg == nil {
		return Fence{}, "", err
	}
	var body fenceBody
	if err := json.Unmarshal(msg.Data, &body); err != nil || body.Generation < 1 {
		return Fence{}, "", fmt.Errorf("message %d on %s is not a fence", msg.Sequence, msg.Subject)
	}
	return Fence{Generation: body.Generation, Seq: msg.Sequence}, body.Token, nil
}

// lastMessage asks the leader of GRANTS for the last message on a subject, nil
// when there is none.
func (s *Stream) lastMessage(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	grants, err := s.grantsStream(ctx)
	if err != nil {
		return nil, err
	}
	msg, err := grants.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last message on %s: %w", subject, err)
	}
	return msg, nil
}

// BeginGeneration publishes the next fence of a sale. Its generation is one more
// than that of the last fence, and at least atLeast. When it returns without an error,
// no batch of an earlier generation can enter the stream any more, and all that
// did stand before Fence.Seq.
//
// Several may call it at once for one sale: each gets a generation of its own, the
// later one holds. When it returns an error a fence may have been published all the
// same; that only closes a generation that was to be closed anyhow.
func (s *Stream) BeginGeneration(ctx context.Context, saleID string, atLeast int64) (Fence, error) {
	token := rand.Text()
	var failure error
	for attempt := 1; attempt <= s.cfg.FenceAttempts; attempt++ {
		fence, err := s.tryFence(ctx, saleID, max(atLeast, 1), token)
		if err == nil {
			return fence, nil
		}
		failure = err
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, fenceRetryMax)) {
			break
		}
	}
	return Fence{}, fmt.Errorf("begin a generation of sale %s: %w", saleID, failure)
}

// tryFence reads the last fence and publishes the next one on the condition that
// it still is the last. A fence with our token is ours: an earlier attempt whose answer we missed.
func (s *Stream) tryFence(ctx context.Context, saleID string, atLeast int64, token string) (Fence, error) {
	last, lastToken, err := s.lastFence(ctx, saleID)
	if err != nil {
		return Fence{}, err
	}
	if lastToken == token {
		return last, nil
	}
	next := max(last.Generation+1, atLeast)
	body, err := json.Marshal(fenceBody{Generation: next, Token: token})
	if err != nil {
		return Fence{}, fmt.Errorf("encode a fence: %w", err)
	}
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return Fence{}, err
	}
	defer cancel()
	ack, err := s.js.Publish(ctx, fenceSubject(saleID), body,
		jetstream.WithExpectStream(GrantsStream),
		jetstream.WithExpectLastSequencePerSubject(last.Seq),
		jetstream.WithRetryAttempts(0))
	if err != nil {
		return Fence{}, fmt.Errorf("publish a fence: %w", err)
	}
	return Fence{Generation: next, Seq: ack.Sequence}, nil
}
