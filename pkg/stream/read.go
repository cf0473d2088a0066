package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Errors of ReadGrants.
var (
	// ErrStreamChanged says that GRANTS was deleted and made again while it was read.
	ErrStreamChanged = errors.New("the stream was made anew while it was read")
	// ErrBehind says that the stream ends before the sequence to read through.
	ErrBehind = errors.New("the stream ends before the sequence to read through")
)

// Bounds of one fetch of a reader.
const (
	readFetchMax   = 1000
	readFetchBytes = 8 << 20 // counts as no less than the server's max_payload
	readFetchWait  = time.Second
	// readerIdle is how long the server keeps the consumer of a reader that died.
	readerIdle = time.Minute
	// fetchOverhead is room for subject, reply subject and headers of a message, which
	// the server counts as its size, in bytes.
	fetchOverhead = 4096
)

// ReadGrants visits every batch of a sale with afterSeq < seq <= throughSeq, in
// the order of the stream, each once. It outlives reconnects and restarts of the server
// (see Config.ReadAttempts), and when it returns nil nothing has been left out.
//
// It never takes silence for the end. It reads the sale's fences too, and ends when
// it is handed a message of the sale at or beyond throughSeq: the stream has been read in order up to
// there. That is always so when throughSeq is the sequence of a fence, as the
// reconciler's is. For another throughSeq it first asks the stream's leader for the sale's last
// message, and ends with that.
//
// Errors: ErrStreamChanged, ErrBehind, sale.ErrCorrupt for a batch that can't be
// decoded, what visit returned, or what kept it from reading.
func (s *Stream) ReadGrants(ctx context.Context, saleID string, afterSeq, throughSeq uint64,
	visit func(seq uint64, batch sale.Batch) error) error {
	r := &reader{stream: s, saleID: saleID, last: afterSeq, through: throughSeq, visit: visit}
	defer r.drop()
	if err := r.read(ctx); err != nil {
		return fmt.Errorf("read the grants of sale %s in (%d, %d]: %w", saleID, afterSeq, throughSeq, err)
	}
	return nil
}

// reader is one ReadGrants. It has a consumer of its own on the server, without
// acknowledgements, and makes another one after every failure, from where it stands.
type reader struct {
	stream   *Stream
	saleID   string
	through  uint64
	visit    func(seq uint64, batch sale.Batch) error
	streamID int64

	consumer  jetstream.Consumer // nil when there is none
	delivered uint64             // its deliveries so far: a gap shows a lost one
	last      uint64             // sequence up to which everything has been visited
	end       uint64             // sequence that ends the reading
}

// stop wraps an error that no further attempt can heal.
type stop struct{ error }

func (e stop) Unwrap() error { return e.error }

func (r *reader) read(ctx context.Context) error {
	if r.through <= r.last {
		return nil
	}
	failures := 0
	for {
		before := r.last
		done, err := r.step(ctx)
		if err == nil && done {
			return nil
		}
		if permanent, ok := errors.AsType[stop](err); ok {
			return permanent.error
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err == nil {
			continue
		}
		if r.last > before {
			failures = 0
		}
		failures++
		if failures >= r.stream.cfg.ReadAttempts {
			return err
		}
		r.drop()
		backoff.Pause(ctx, backoff.Delay(failures, retryBase, retryMax))
	}
}

// step is one fetch. Before the first, after a failure and after silence it
// asks the leader anew where the reading ends.
func (r *reader) step(ctx context.Context) (done bool, err error) {
	if r.consumer == nil {
		if err := r.aim(ctx); err != nil || r.last >= r.end {
			return err == nil, err
		}
		if err := r.open(ctx); err != nil {
			return false, err
		}
	}
	before := r.last
	if err := r.fetch(ctx); err != nil {
		return false, err
	}
	if r.last == before {
		// Purged under our hands, perhaps: then the end has moved.
		if err := r.aim(ctx); err != nil {
			return false, err
		}
	}
	if r.last < r.end {
		return false, nil
	}
	return true, r.checkStream(ctx)
}

// aim finds out where the reading ends: at through when the sale has a message
// there or beyond, else at the sale's last message.
func (r *reader) aim(ctx context.Context) error {
	info, err := r.stream.grantsInfo(ctx)
	if err != nil {
		return err
	}
	if r.streamID == 0 {
		r.streamID = identity(info)
	}
	if identity(info) != r.streamID {
		return stop{ErrStreamChanged}
	}
	if info.State.LastSeq < r.through {
		return stop{fmt.Errorf("%w: its last is %d", ErrBehind, info.State.LastSeq)}
	}
	r.end = 0
	for _, subject := range r.subjects() {
		msg, err := r.stream.lastMessage(ctx, subject)
		if err != nil {
			return err
		}
		if msg != nil {
			r.end = max(r.end, msg.Sequence)
		}
	}
	r.end = min(r.end, r.through)
	return nil
}

func (r *reader) checkStream(ctx context.Context) error {
	id, err := r.stream.StreamID(ctx)
	if err == nil && id != r.streamID {
		err = stop{ErrStreamChanged}
	}
	return err
}

func (r *reader) subjects() []string {
	return []string{grantsSubject(r.saleID), fenceSubject(r.saleID)}
}

// open makes the consumer.
func (r *reader) open(ctx context.Context) error {
	ctx, cancel, err := r.stream.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	consumer, err := r.stream.js.CreateConsumer(ctx, GrantsStream, jetstream.ConsumerConfig{
		Description:       "Doorbuster: reads the grants of a sale",
		FilterSubjects:    r.subjects(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       r.last + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: readerIdle,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return fmt.Errorf("create a consumer to read with: %w", err)
	}
	r.consumer, r.delivered = consumer, 0
	return nil
}

// drop removes the consumer. If that fails the server does it after readerIdle.
func (r *reader) drop() {
	if r.consumer == nil {
		return
	}
	name := r.consumer.CachedInfo().Name
	r.consumer = nil
	// The reader's own context may be over; the request is bounded by itself.
	ctx, cancel, err := r.stream.request(context.Background())
	if err != nil {
		return
	}
	defer cancel()
	_ = r.stream.js.DeleteConsumer(ctx, GrantsStream, name)
}

// fetch visits the messages of one fetch.
func (r *reader) fetch(ctx context.Context) error {
	if !r.stream.nc.IsConnected() {
		return ErrNotConnected // see Consumer.consume
	}
	fetchCtx, cancel := context.WithTimeout(ctx, readFetchWait)
	defer cancel()
	// Limiting the bytes is safe here, see Consumer.fetch: this consumer has no replicas.
	fetched, err := r.consumer.Fetch(readFetchMax, jetstream.FetchContext(fetchCtx),
		jetstream.FetchMaxBytes(max(readFetchBytes, int(r.stream.nc.MaxPayload())+fetchOverhead)))
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	for msg := range fetched.Messages() {
		if r.last >= r.end {
			continue // read to its end, so that its goroutine ends
		}
		if err := r.take(msg); err != nil {
			cancel()
			for range fetched.Messages() { // until its goroutine has seen the cancel
			}
			return err
		}
		if r.last >= r.end {
			cancel()
		}
	}
	if err := fetched.Error(); err != nil && r.last < r.end && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("fetch: %w", err)
	}
	return nil
}

// take visits one message. A message beyond through is the proof that all before
// it has been seen.
func (r *reader) take(msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read the metadata of a delivery: %w", err)
	}
	if meta.Sequence.Consumer != r.delivered+1 {
		return fmt.Errorf("delivery %d follows %d: some were lost on the way", meta.Sequence.Consumer, r.delivered)
	}
	r.delivered++
	seq := meta.Sequence.Stream
	if seq > r.through {
		r.last = r.through
		return nil
	}
	if _, isFence := saleOf(msg.Subject()); !isFence {
		batch, err := sale.DecodeBatch(msg.Data())
		if err != nil {
			return stop{fmt.Errorf("message %d: %w", seq, err)}
		}
		if err := r.visit(seq, batch); err != nil {
			return stop{err}
		}
	}
	r.last = seq
	return nil
}
