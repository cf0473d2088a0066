package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoDeadLetter says that there is no dead letter with this sequence.
var ErrNoDeadLetter = errors.New("no such dead letter")

// DeadPageMax is the most dead letters one DeadLetters call returns.
const DeadPageMax = 1000

// DeadLetter is what the order worker gave up on: a whole message of GRANTS or a
// single record of it.
type DeadLetter struct {
	Seq    uint64 // its sequence in DEAD, set by the server; also the page cursor
	SaleID string
	// ID names what died, so that giving up twice leaves one letter (within the
	// server's window of two minutes).
	ID        string
	SourceSeq uint64 // the message's sequence in GRANTS
	Reason    string
	At        time.Time // when it was stored, set by the server
	Data      []byte
}

// Headers of a dead letter.
const (
	headerReason    = "Doorbuster-Reason"
	headerSourceSeq = "Doorbuster-Source-Seq"
)

// maxReason bounds a reason, in bytes: it travels in a header.
const maxReason = 1000

// PublishDead stores a dead letter and returns its sequence once it is on disk.
// Seq and At of the letter are ignored.
func (s *Stream) PublishDead(ctx context.Context, letter DeadLetter) (seq uint64, err error) {
	// Not sale.ValidID: what stands on a strange subject must be able to die, too.
	if letter.SaleID == "" || strings.ContainsAny(letter.SaleID, ".*> \t\r\n") {
		return 0, errors.New("publish a dead letter: the sale's id is not a subject token")
	}
	if !s.nc.IsConnected() {
		return 0, fmt.Errorf("publish a dead letter: %w", ErrNotConnected)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	msg := nats.NewMsg(deadSubject(letter.SaleID))
	msg.Data = letter.Data
	msg.Header.Set(headerReason, headerText(letter.Reason))
	msg.Header.Set(headerSourceSeq, strconv.FormatUint(letter.SourceSeq, 10))
	ack, err := s.js.PublishMsg(ctx, msg,
		jetstream.WithMsgID(letter.ID), jetstream.WithExpectStream(DeadStream), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, fmt.Errorf("publish dead letter %s of sale %s: %w", letter.ID, letter.SaleID, err)
	}
	return ack.Sequence, nil
}

// headerText makes a reason fit for a header: one line, not too long.
func headerText(reason string) string {
	line := []byte(reason[:min(len(reason), maxReason)])
	for i, b := range line {
		if b < ' ' {
			line[i] = ' '
		}
	}
	return string(line)
}

// DeadLetters returns the dead letters of a sale with a sequence above afterSeq,
// oldest first, at most limit (1 to DeadPageMax). The Seq of the last one is the next page's afterSeq.
func (s *Stream) DeadLetters(ctx context.Context, saleID string, afterSeq uint64, limit int) ([]DeadLetter, error) {
	if limit < 1 || limit > DeadPageMax {
		return nil, fmt.Errorf("list dead letters: limit must be 1 to %d", DeadPageMax)
	}
	var page []DeadLetter
	for len(page) < limit {
		letter, err := s.deadLetter(ctx, afterSeq+1, jetstream.WithGetMsgSubject(deadSubject(saleID)))
		if errors.Is(err, ErrNoDeadLetter) {
			return page, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list dead letters of sale %s: %w", saleID, err)
		}
		page = append(page, letter)
		afterSeq = letter.Seq
	}
	return page, nil
}

// DeadLetter returns one dead letter, or ErrNoDeadLetter.
func (s *Stream) DeadLetter(ctx context.Context, seq uint64) (DeadLetter, error) {
	letter, err := s.deadLetter(ctx, seq)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", seq, err)
	}
	return letter, nil
}

func (s *Stream) deadLetter(ctx context.Context, seq uint64, options ...jetstream.GetMsgOpt) (DeadLetter, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return DeadLetter{}, err
	}
	defer cancel()
	dead, err := s.deadStream(ctx)
	if err != nil {
		return DeadLetter{}, err
	}
	msg, err := dead.GetMsg(ctx, seq, options...)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return DeadLetter{}, ErrNoDeadLetter
	}
	if err != nil {
		return DeadLetter{}, err
	}
	source, err := strconv.ParseUint(msg.Header.Get(headerSourceSeq), 10, 64)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("message %d of %s is not a dead letter: %w", msg.Sequence, DeadStream, err)
	}
	saleID, _ := saleOf(msg.Subject)
	return DeadLetter{
		Seq:       msg.Sequence,
		SaleID:    saleID,
		ID:        msg.Header.Get(jetstream.MsgIDHeader),
		SourceSeq: source,
		Reason:    msg.Header.Get(headerReason),
		At:        msg.Time,
		Data:      msg.Data,
	}, nil
}
