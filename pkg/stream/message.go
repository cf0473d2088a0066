package stream

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Message is one message of GRANTS, as the consumer hands it to its Handler.
type Message struct {
	StreamID     int64  // identity of the stream that Seq belongs to, see Stream.StreamID
	Seq          uint64 // its sequence in GRANTS
	Subject      string
	SaleID       string
	IsFence      bool   // the beginning of a generation; it carries no grants
	Data         []byte // a batch for sale.DecodeBatch, unless IsFence
	NumDelivered int    // 1 the first time
	Timestamp    time.Time

	delivery jetstream.Msg
}

// InProgress starts the message's AckWait anew, for work that takes long.
func (m *Message) InProgress() error {
	if err := m.delivery.InProgress(); err != nil {
		return fmt.Errorf("keep message %d in progress: %w", m.Seq, err)
	}
	return nil
}

// newMessage fails only for a message that is not of a consumer.
func newMessage(streamID int64, delivery jetstream.Msg) (Message, error) {
	meta, err := delivery.Metadata()
	if err != nil {
		return Message{}, fmt.Errorf("read the metadata of a delivery: %w", err)
	}
	m := Message{
		StreamID:     streamID,
		Seq:          meta.Sequence.Stream,
		Subject:      delivery.Subject(),
		Data:         delivery.Data(),
		NumDelivered: int(meta.NumDelivered),
		Timestamp:    meta.Timestamp,
		delivery:     delivery,
	}
	m.SaleID, m.IsFence = saleOf(m.Subject)
	return m, nil
}

// Result is what becomes of a message after its Handler. The zero Result is a
// Retry after the consumer's RetryDelay, so a message that was forgotten comes again.
type Result struct {
	kind  resultKind
	after time.Duration
}

type resultKind byte

const (
	kindRetry resultKind = iota
	kindAck
)

// Ack ends a message: its work is durable.
func Ack() Result { return Result{kind: kindAck} }

// Retry has a message delivered again after a while; backoff.Delay(m.NumDelivered, ...)
// gives one that grows. Zero or less means the consumer's RetryDelay.
func Retry(after time.Duration) Result { return Result{kind: kindRetry, after: after} }
