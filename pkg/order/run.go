package order

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// run is one call of runOnce.
type run struct {
	worker  *Worker
	results []stream.Result
	tally   Tally
	away    bool // the database does not answer, or we stop: the rest waits
	hurried bool // a transaction met a lock or had no time: the next ones get less
}

// decode reads the messages. One that can't be read becomes a dead letter at
// once, and is then as good as empty: what is left of it is progress.
func (r *run) decode(ctx context.Context, messages []stream.Message) []*delivery {
	deliveries := make([]*delivery, 0, len(messages))
	for i := range messages {
		d := &delivery{Message: &messages[i], index: i}
		if !d.IsFence {
			var err error
			if d.batch, err = sale.DecodeBatch(d.Data); err != nil {
				d.batch = sale.Batch{}
				if err := r.buryMessage(ctx, d, err); err != nil {
					r.retry(d, ReasonBurial, err)
					continue
				}
			}
		}
		deliveries = append(deliveries, d)
	}
	slices.SortFunc(deliveries, func(a, b *delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	return deliveries
}

// parts packs deliveries into transactions of about GrantsPerTx grants.
func (r *run) parts(deliveries []*delivery) []part {
	var parts []part
	var now part
	grants := 0
	for _, d := range deliveries {
		if len(now) > 0 && grants+len(d.batch.Grants) > r.worker.cfg.GrantsPerTx {
			parts = append(parts, now)
			now, grants = nil, 0
		}
		now = append(now, portion{delivery: d, grants: d.batch.Grants, whole: true})
		grants += len(d.batch.Grants)
	}
	if len(now) > 0 {
		parts = append(parts, now)
	}
	return parts
}

// write writes a part and settles its messages.
func (r *run) write(ctx context.Context, p part) {
	v, err := r.record(ctx, p)
	switch {
	case v == recorded:
		for _, s := range p {
			r.results[s.delivery.index] = stream.Ack()
		}
	case v == away:
		r.retryAll(p, ReasonAway)
	case (v == unsure || v == busy && len(p.bySale()) == 1) && p.deliveries() < r.worker.cfg.ApartAfter:
		r.retryAll(p, ReasonFailed)
	default:
		r.takeApart(ctx, p, v, err)
	}
}

// verdict is what one transaction says about the grants in it.
type verdict byte

const (
	recorded verdict = iota // committed
	refused                 // the data is to blame
	unsure                  // the database answers, and yet it failed
	busy                    // a lock, or no time: it passes, and no grant is to blame
	away                    // no database, or no time left
)

// record writes a part in one transaction.
func (r *run) record(ctx context.Context, p part) (verdict, error) {
	w := r.worker
	begin := time.Now()
	tx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	result, err := w.ledger.Record(tx, p.batch())
	w.metrics.TxSeconds.Observe(time.Since(begin).Seconds())
	if err != nil {
		r.tally.Failure = err
		return r.judge(ctx, err), err
	}
	w.metrics.TxGrants.Observe(float64(p.grants()))
	r.tally.Grants += p.grants()
	r.tally.Orders += result.Orders + len(result.Rejected)
	r.tally.Rejected = append(r.tally.Rejected, result.Rejected...)
	for _, s := range p {
		s.delivery.written = s.delivery.written || s.whole
		for i := range s.grants {
			w.written(s.grants[i].OrderID)
		}
	}
	return recorded, nil
}

// judge says who is to blame for a failed transaction. What the ledger does not
// call permanent may be an outage: then the database does not answer now.
func (r *run) judge(ctx context.Context, err error) verdict {
	if r.worker.ledger.Permanent(err) {
		return refused
	}
	switch {
	case r.ping(ctx) != nil:
		return away
	case r.worker.ledger.Transient(err):
		r.hurried = true
		return busy
	}
	return unsure
}

// hurry is by how much a transaction gets less time after one that met a lock:
// a batch may hold the grants of many sales, and each may meet one.
const hurry = 10

func (r *run) patience() time.Duration {
	if r.hurried {
		return r.worker.cfg.TxTimeout / hurry
	}
	return r.worker.cfg.TxTimeout
}

// ping asks the database for a sign of life; without one the rest waits.
func (r *run) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.worker.cfg.PingTimeout)
	defer cancel()
	err := r.worker.ledger.Ping(ctx)
	r.away = r.away || err != nil
	return err
}

func (r *run) retryAll(p part, reason string) {
	for _, s := range p {
		r.retry(s.delivery, reason, nil)
	}
}

// retry has a message come again after a delay that grows with its deliveries.
func (r *run) retry(d *delivery, reason string, err error) {
	if err != nil {
		r.tally.Failure = err
	}
	r.tally.Retried[reason]++
	r.results[d.index] = stream.Retry(backoff.Delay(d.NumDelivered, r.worker.cfg.RetryBase, r.worker.cfg.RetryMax))
}
