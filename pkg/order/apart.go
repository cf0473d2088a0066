package order

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// takeApart writes what can be written of a part that failed with err, and
// settles its messages: those with a grant that can't be written come again
// until they came often enough, then the grant becomes a dead letter.
func (r *run) takeApart(ctx context.Context, p part, v verdict, err error) {
	r.separate(ctx, p, v, err)
	var rest part // messages whose grants are all dealt with, but not their progress
	for _, s := range p {
		switch d := s.delivery; {
		case d.written:
			r.results[d.index] = stream.Ack()
		case r.away:
			r.retry(d, ReasonAway, nil)
		case d.stuck:
			r.retry(d, ReasonFailed, nil)
		case len(d.blamed) == 0:
			rest = append(rest, portion{delivery: d, whole: true})
		case d.NumDelivered < r.worker.cfg.MaxDeliveries:
			r.retry(d, ReasonPoison, d.blamed[0].err)
		default:
			if err := r.buryBlamed(ctx, d); err != nil {
				r.retry(d, ReasonBurial, err)
				continue
			}
			rest = append(rest, portion{delivery: d, whole: true})
		}
	}
	r.finish(ctx, rest)
}

// finish records the progress of messages whose grants are all dealt with.
func (r *run) finish(ctx context.Context, rest part) {
	if len(rest) == 0 {
		return
	}
	v, _ := r.record(ctx, rest)
	for _, s := range rest {
		switch v {
		case recorded:
			r.results[s.delivery.index] = stream.Ack()
		case away:
			r.retry(s.delivery, ReasonAway, nil)
		default:
			r.retry(s.delivery, ReasonFailed, nil)
		}
	}
}

// separate writes what it can of a part that failed. It splits the part, first by
// sale, until single grants are left to blame: at most two transactions per grant,
// and few when few are to blame.
func (r *run) separate(ctx context.Context, p part, v verdict, err error) {
	if poison, ok := errors.AsType[*ledger.PoisonError](err); ok {
		rest, named := p.without(poison.Grants)
		for _, s := range named {
			s.delivery.blamed = append(s.delivery.blamed, blamed{&s.grants[0], reasonOf(poison, &s)})
		}
		if len(named) > 0 {
			r.again(ctx, rest)
			return
		}
	}
	if sales := p.bySale(); len(sales) > 1 {
		for _, one := range sales {
			r.again(ctx, one)
		}
		return
	}
	left, right, ok := p.halves()
	if !ok {
		r.blame(ctx, p, v, err)
		return
	}
	r.again(ctx, left)
	if v == busy && left.stuck() {
		// Not a matter of size: the right half would only wait for the same lock.
		right.setStuck()
		return
	}
	r.again(ctx, right)
}

// again tries a part, and separates it when it fails.
func (r *run) again(ctx context.Context, p part) {
	if r.away || len(p) == 0 {
		return
	}
	if v, err := r.record(ctx, p); v == refused || v == unsure || v == busy {
		r.separate(ctx, p, v, err)
	}
}

// blame notes that a single grant can't be written. Before one is given up for
// an error that might pass, it has one more try: the database was perhaps just
// coming back when it failed.
func (r *run) blame(ctx context.Context, p part, v verdict, err error) {
	d := p[0].delivery
	if len(p[0].grants) == 0 || v == busy {
		d.stuck = true
		return
	}
	if v == unsure && d.NumDelivered >= r.worker.cfg.MaxDeliveries {
		if v, err = r.record(ctx, p); v == recorded || v == away {
			return
		}
		if v == busy {
			d.stuck = true
			return
		}
	}
	d.blamed = append(d.blamed, blamed{&p[0].grants[0], err})
}

// reasonOf is what the ledger has against a grant it names.
func reasonOf(poison *ledger.PoisonError, s *portion) error {
	for i := range poison.Grants {
		if g := &poison.Grants[i]; g.Seq == s.delivery.Seq && g.Grant.OrderID == s.grants[0].OrderID {
			return g.Reason
		}
	}
	return poison
}

// buryBlamed makes dead letters of a message's grants that can't be written. A
// letter is in the stream before it is in the table, and in the table before the
// message ends; a crash in between repeats what was done.
func (r *run) buryBlamed(ctx context.Context, d *delivery) error {
	for _, b := range d.blamed {
		err := r.bury(ctx, d, b.grant.OrderID, b.err, sale.AppendGrant(nil, b.grant))
		if err != nil {
			return err
		}
		r.tally.Buried = append(r.tally.Buried, Buried{d.SaleID, b.grant.OrderID, d.Seq, b.err.Error()})
	}
	return nil
}

// buryMessage makes a dead letter of a message that can't be read.
func (r *run) buryMessage(ctx context.Context, d *delivery, reason error) error {
	id := "message-" + strconv.FormatInt(d.StreamID, 10) + "-" + strconv.FormatUint(d.Seq, 10)
	if err := r.bury(ctx, d, id, reason, d.Data); err != nil {
		return err
	}
	r.tally.Buried = append(r.tally.Buried, Buried{SaleID: d.SaleID, Seq: d.Seq, Reason: reason.Error()})
	return nil
}

// bury stores one dead letter. It asks for the database first, so that an outage
// does not fill the stream with letters that can't be finished.
func (r *run) bury(ctx context.Context, d *delivery, id string, reason error, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.worker.cfg.TxTimeout)
	defer cancel()
	err := r.ping(ctx)
	if err == nil {
		_, err = r.worker.stream.PublishDead(ctx, stream.DeadLetter{
			SaleID: d.SaleID, ID: deadID(d, data), SourceSeq: d.Seq, Reason: reason.Error(), Data: data,
		})
	}
	if err == nil {
		err = r.worker.ledger.BuryDead(ctx, ledger.DeadLetter{
			SaleID: d.SaleID, OrderID: id, StreamID: d.StreamID, Seq: d.Seq, Generation: d.batch.Generation,
			Reason: reason.Error(), Attempts: d.NumDelivered, Record: data,
		})
	}
	if err != nil {
		return fmt.Errorf("bury message %d of sale %s: %w", d.Seq, d.SaleID, err)
	}
	return nil
}

// deadID names a letter for the stream's de-duplication. It travels in a header,
// and what is in a poisonous grant need not fit there.
func deadID(d *delivery, data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%d-%d-%x", d.StreamID, d.Seq, sum[:8])
}
