package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// How a publish can fail. Every error of Publish is exactly one of these.
var (
	// ErrFenced says that the batch's fence is not the sale's last one: its
	// generation is over. This attempt did not store the batch.
	ErrFenced = errors.New("fenced: the generation of the batch is over")
	// ErrBusy says that another publish of the same sale is in flight. This
	// attempt did not store the batch; try again after a short backoff.Delay.
	ErrBusy = errors.New("another publish of the sale is in flight")
	// ErrNotSent says that this attempt did not reach the stream: there is no
	// connection, the stream has no leader, or the message can't be sent at all.
	ErrNotSent = errors.New("not sent")
	// ErrAmbiguous says that the batch may have been stored, or may still be: it
	// was sent, and no clear answer came.
	ErrAmbiguous = errors.New("no clear answer, the batch may have been stored")
)

// Publish stores a batch: body is what the outbox holds, head its head. One
// attempt, which waits no longer than Config.PublishTimeout or ctx, whichever ends
// first. It returns the batch's sequence in GRANTS once the batch is on disk.
//
// A batch is stored only while the fence it was made under is the last one of its
// sale; the server itself checks that, in one step with storing the batch.
//
// Publishing a batch again is harmless: within two minutes the server knows its id,
// stores nothing, and answers with the sequence it has. Such an answer is true even when a
// fence has followed since, because the batch stands before that fence. But not
// every server gives it (nats-server 2.15.2, read in its source and held by tests):
//
//   - one server alone (Replicas 1) compares the fence first and the id after it. A
//     batch that was stored before a later fence is answered ErrFenced when it is published again;
//   - with replicas the id is compared first: the same batch is answered with its sequence.
//
// So ErrFenced speaks about this attempt only. After an attempt that ended in
// ErrAmbiguous it does not prove that the batch is absent: the restored state knows.
//
// With Replicas above 1 the server takes one publish per sale at a time and answers
// the others with ErrBusy. Those of one Stream wait for each other here, so it is
// other processes that make one busy.
func (s *Stream) Publish(ctx context.Context, saleID string, head sale.BatchHead, body []byte) (seq uint64, err error) {
	if err := checkBatch(saleID, head, body); err != nil {
		return 0, publishError(saleID, head, ErrNotSent, err)
	}
	if !s.nc.IsConnected() {
		return 0, publishError(saleID, head, ErrNotSent, ErrNotConnected)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	if s.replicated.Load() {
		giveBack, err := s.turns.take(ctx, saleID)
		if err != nil {
			return 0, publishError(saleID, head, ErrNotSent, err)
		}
		defer giveBack()
	}
	if err := ctx.Err(); err != nil {
		return 0, publishError(saleID, head, ErrNotSent, err)
	}
	ack, err := s.js.Publish(ctx, grantsSubject(saleID), body,
		jetstream.WithMsgID(batchID(saleID, head)),
		jetstream.WithExpectStream(GrantsStream),
		jetstream.WithExpectLastSequenceForSubject(head.Fence, fenceSubject(saleID)),
		jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, publishError(saleID, head, publishFailure(err), err)
	}
	return ack.Sequence, nil
}

// batchID is the Msg-Id of a batch. GRANTS remembers ids over all its subjects, and
// the head's id is unique within its sale only.
func batchID(saleID string, head sale.BatchHead) string { return saleID + "." + head.ID() }

// checkBatch refuses a batch whose body belongs to another head: the fence in the
// head would then guard the wrong generation.
func checkBatch(saleID string, head sale.BatchHead, body []byte) error {
	switch {
	case !sale.ValidID(saleID):
		return errors.New("the sale's id is not valid")
	case head.Fence == 0:
		return errors.New("the batch has no fence")
	case !bytes.HasPrefix(body, sale.AppendHead(nil, head)):
		return errors.New("the body does not begin with the head")
	default:
		return nil
	}
}

// publishFailure says which of the four errors a failed publish is. In doubt it
// is ErrAmbiguous.
func publishFailure(err error) error {
	switch apiCode(err) {
	case jetstream.JSErrCodeStreamWrongLastSequence:
		return ErrFenced
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant, codeDuplicateInProcess:
		return ErrBusy
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return ErrNotSent
	}
	// Note that nats.ErrConnectionClosed and nats.ErrDisconnected are ambiguous:
	// the client gives them before and after the message was written.
	for _, notSent := range []error{
		jetstream.ErrNoStreamResponse, // nobody listens: the server said so instead of an answer
		nats.ErrNoResponders,
		nats.ErrReconnectBufExceeded, // the connection is down, and nothing is kept for later
		nats.ErrConnectionDraining,
		nats.ErrMaxPayload,
		nats.ErrBadSubject,
	} {
		if errors.Is(err, notSent) {
			return ErrNotSent
		}
	}
	return ErrAmbiguous
}

func publishError(saleID string, head sale.BatchHead, kind, cause error) error {
	return fmt.Errorf("publish batch %s of sale %s: %w: %w", head.ID(), saleID, kind, cause)
}
