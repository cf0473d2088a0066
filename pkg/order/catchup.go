package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// CatchUpStream is what a CatchUp needs of JetStream.
type CatchUpStream interface {
	StreamInfo
	TimestampAt(ctx context.Context, seq uint64) (at int64, found bool, err error)
	NextSeq(ctx context.Context, seq uint64) (uint64, error)
	RewindOrders(ctx context.Context, seq uint64) error
}

// CatchUpLedger is what a CatchUp needs of MySQL.
type CatchUpLedger interface {
	Progress
	Record(ctx context.Context, batch ledger.Batch) (ledger.Result, error)
	ForgetProgress(ctx context.Context, streamID int64) error
}

// Progress tells which messages of a stream are written.
type Progress interface {
	Progress(ctx context.Context, streamID int64) ([]ledger.Range, error)
}

// catchUpEvery is how often a CatchUp looks. What it mends is hours of work for a
// person, and took a failover to happen: seconds don't matter.
const catchUpEvery = 5 * time.Second

// gapsMax bounds the purged gaps of one look; the next look goes on.
const gapsMax = 1000

// CatchUp finds messages that are settled, so that the stream will not deliver
// them again, and yet are not in the ledger: a MySQL that failed over has lost
// commits, or NATS was restored from an older copy and gives sequences that
// are written to other messages. It sends the workers back to them.
type CatchUp struct {
	every   time.Duration
	ledger  CatchUpLedger
	stream  CatchUpStream
	rewinds prometheus.Counter
	log     *slog.Logger
	before  finding // of the look before
}

// finding is what one look found; the zero value is nothing.
type finding struct {
	streamID  int64
	seq       uint64 // the first message to read again
	last      uint64 // of the stream
	regressed bool   // the ledger's progress is of another course of the stream
}

// same reports whether two looks found the same; only the stream may have grown.
func (f finding) same(g finding) bool {
	f.last = g.last
	return f == g
}

// NewCatchUp returns a CatchUp that looks at once and then every so often; zero
// is every 5s.
func NewCatchUp(every time.Duration, l CatchUpLedger, s CatchUpStream, rewinds prometheus.Counter, log *slog.Logger) *CatchUp {
	setDefault(&every, catchUpEvery)
	return &CatchUp{every: every, ledger: l, stream: s, rewinds: rewinds, log: log}
}

// Run looks until ctx ends.
func (c *CatchUp) Run(ctx context.Context) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		mended, err := c.runOnce(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.log.WarnContext(ctx, "can't tell whether the ledger lacks settled messages", "error", err)
		case mended.seq != 0:
			c.rewinds.Inc()
			c.log.WarnContext(ctx, "the ledger lacks settled messages; the order workers read the stream again",
				"from_seq", mended.seq, "messages", mended.last-mended.seq+1, "stream_regressed", mended.regressed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// runOnce looks once, and rewinds when the look before found the same. It
// returns what it rewound for.
func (c *CatchUp) runOnce(ctx context.Context) (finding, error) {
	found, err := c.look(ctx)
	again := found.seq != 0 && found.same(c.before)
	c.before = found
	if err != nil || !again {
		return finding{}, err
	}
	c.before = finding{}
	if found.regressed {
		// In this order: after a crash in between, the next look finds everything missing.
		if err := c.ledger.ForgetProgress(ctx, found.streamID); err != nil {
			return finding{}, err
		}
	}
	if err := c.stream.RewindOrders(ctx, found.seq); err != nil {
		return finding{}, fmt.Errorf("rewind the order workers to %d: %w", found.seq, err)
	}
	return found, nil
}

// look compares the stream with the ledger. It asks the stream first: what the
// consumer calls settled by then was committed before.
func (c *CatchUp) look(ctx context.Context) (finding, error) {
	status, err := c.stream.Info(ctx)
	if err != nil {
		return finding{}, err
	}
	written, err := c.ledger.Progress(ctx, status.StreamID)
	if err != nil {
		return finding{}, err
	}
	first := max(status.FirstSeq, 1)
	found := finding{streamID: status.StreamID, last: status.LastSeq}
	floor, at := ledger.Floor(written, first)
	if at != 0 {
		is, ok, err := c.stream.TimestampAt(ctx, floor)
		if err != nil {
			return finding{}, err
		}
		if !ok || is != at {
			found.seq, found.regressed = first, true
			return found, nil
		}
	}
	if floor >= status.LastSeq {
		return finding{}, nil
	}
	found.seq, err = c.missing(ctx, status.StreamID, written, floor)
	if err != nil || found.seq == 0 || !settled(status, found.seq) {
		return finding{}, err
	}
	return found, nil
}

// settled reports whether the stream will not deliver a message by itself.
func settled(status stream.Status, seq uint64) bool {
	return seq <= status.AckFloor || status.Pending == 0 && status.AckPending == 0
}

// missing is the first message beyond the floor that is not written, 0 when there
// is none. Sequences of purged messages can't be written any more: it counts them
// as written, so that the floor gets over them.
func (c *CatchUp) missing(ctx context.Context, streamID int64, written []ledger.Range, floor uint64) (uint64, error) {
	var purged []ledger.Range
	for range gapsMax {
		next, err := c.stream.NextSeq(ctx, floor+1)
		if errors.Is(err, stream.ErrNoMessage) {
			break
		}
		if err != nil {
			return 0, err
		}
		end, _ := ledger.Floor(written, next)
		if end < next {
			return next, c.count(ctx, streamID, purged)
		}
		if next > floor+1 {
			purged = append(purged, ledger.Range{First: floor + 1, Last: next - 1})
		}
		floor = end
	}
	return 0, c.count(ctx, streamID, purged)
}

func (c *CatchUp) count(ctx context.Context, streamID int64, purged []ledger.Range) error {
	if len(purged) == 0 {
		return nil
	}
	_, err := c.ledger.Record(ctx, ledger.Batch{StreamID: streamID, Done: purged})
	return err
}
