package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// run is one call of Reconcile.
type run struct {
	*Reconciler
	saleID string
	forced bool
	sale   sale.Sale
	report Report
	// atLeast is the least generation Redis will take.
	atLeast int64
	restock *restock // nil in most runs
}

// cleanupTimeout bounds giving a lease back and freeing temporary keys.
const cleanupTimeout = 2 * time.Second

// do is the whole run.
func (x *run) do(ctx context.Context) error {
	var err error
	if x.sale, err = x.ledger.GetSale(ctx, x.saleID); err != nil {
		return err
	}
	if !x.cfg.loadable(&x.sale, x.now()) {
		x.report.Result = ResultNotLoadable
		return nil
	}
	lease, err := x.acquire(ctx)
	if lease == nil {
		return err
	}
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = lease.Release(release) // it ends by itself
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lease.Lost():
			cancel(errLeaseLost)
		case <-ctx.Done():
		}
	}()
	if err = x.rebuildUntilCurrent(ctx); err != nil && errors.Is(context.Cause(ctx), errLeaseLost) {
		err = errors.Join(errLeaseLost, err)
	}
	return err
}

var errLeaseLost = errors.New("the lease on the sale was lost")

// acquire takes the lease on the sale. Without one the report's result says why
// not: another reconciler made the sale healthy, or was at it for too long.
func (x *run) acquire(ctx context.Context) (*stream.Lease, error) {
	x.step(x.saleID, StepLease)
	start := time.Now()
	defer func() { x.took(StepLease, time.Since(start)) }()
	for attempt := 1; ; attempt++ {
		lease, err := x.stream.Acquire(ctx, "reconcile-"+x.saleID, x.cfg.LeaseTTL)
		if err == nil || !errors.Is(err, stream.ErrHeld) {
			return lease, err
		}
		if !x.forced {
			x.report.Found, _, err = x.probe(ctx, &x.sale)
			if err == nil && x.report.Found.Loaded {
				x.report.Result = ResultHealthy
				return nil, nil
			}
		}
		if time.Since(start) > x.cfg.WaitTimeout {
			x.report.Result = ResultHeld
			return nil, nil
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			return nil, ctx.Err()
		}
	}
}

// rebuildUntilCurrent looks whether there is anything to do, and begins anew,
// bounded, when Redis fails or moves under an attempt. Each attempt begins a
// generation of its own: the commit of one whose answer was lost may have taken
// place, and grants may have been made under it.
func (x *run) rebuildUntilCurrent(ctx context.Context) error {
	var failure error
	failedProbes := 0
	for x.report.Attempts < x.cfg.MaxAttempts {
		var found Found
		err := x.timed(ctx, StepProbe, func(ctx context.Context) (err error) {
			found, _, err = x.probe(ctx, &x.sale)
			return err
		})
		if x.report.Attempts == 0 {
			x.report.Found = found
		}
		if err != nil {
			// It changed nothing, so it is no attempt: a sale that turns out to be
			// healthy is still to be left alone.
			failedProbes++
			if failedProbes == x.cfg.MaxAttempts || !backoff.Pause(ctx, backoff.Delay(failedProbes, retryBase, retryMax)) {
				return errors.Join(failure, err)
			}
			continue
		}
		// A later reconciler that was first has done what we were asked for.
		var older *stock.OlderGeneration
		overtaken := errors.As(failure, &older)
		if found.Loaded && (overtaken && !x.restock.pending() || x.report.Attempts == 0 && !x.forced) {
			x.report.Result = ResultHealthy
			x.report.Generation, x.report.Fence = found.LastGeneration, found.LastFence
			return nil
		}
		if overtaken {
			x.atLeast = older.Present + 1
		}
		x.report.Attempts++
		if failure = x.attempt(ctx); failure == nil || x.report.Result == ResultRestored {
			return failure
		}
		if !backoff.Pause(ctx, backoff.Delay(x.report.Attempts, retryBase, retryMax)) {
			return failure
		}
	}
	return failure
}

// attempt closes the sale, ends its generation, rebuilds its state and switches
// to it. After any failure the sale is not loaded, or as it was.
func (x *run) attempt(ctx context.Context) error {
	old := x.look(ctx)
	if err := x.timed(ctx, StepClose, func(ctx context.Context) error { return x.stock.Close(ctx, x.saleID) }); err != nil {
		return err
	}
	if err := x.publishOutboxes(ctx); err != nil {
		return err
	}
	fence, err := x.fence(ctx, max(x.atLeast, old.raw.Generation+1))
	if err != nil {
		return err
	}
	if err := x.record(ctx, fence); err != nil {
		return err
	}
	var era lua.Era
	if err := x.timed(ctx, StepMint, func(ctx context.Context) (err error) {
		era, err = x.minter.Era(ctx, x.saleID)
		return err
	}); err != nil {
		return err
	}
	folded, err := x.rebuild(ctx, old, stock.Target{Era: era, Generation: fence.Generation, Fence: fence.Seq})
	if err != nil {
		return err
	}
	x.report.Result = ResultRestored
	x.report.Generation, x.report.Fence, x.report.Era = fence.Generation, fence.Seq, string(era)
	return x.afterwards(ctx, folded)
}

// fence begins the next generation, and has Redis refuse the restore of an earlier
// one: what is given back to that, and marked as applied, might not be in ours.
func (x *run) fence(ctx context.Context, atLeast int64) (fence stream.Fence, err error) {
	return fence, x.timed(ctx, StepFence, func(ctx context.Context) error {
		next, err := x.ledger.NextGeneration(ctx, x.saleID)
		if err != nil {
			return err
		}
		if fence, err = x.stream.BeginGeneration(ctx, x.saleID, max(next, atLeast)); err != nil {
			return err
		}
		return x.stock.Announce(ctx, x.saleID, fence.Generation)
	})
}

// record tells the ledger of the generation before anything is read there: whoever
// writes to the ledger what must hold from one generation to the next knows thereby which
// is the last one; see ledger.SetStock. The ledger counts generations so that they go
// on growing when the stream is made anew.
func (x *run) record(ctx context.Context, fence stream.Fence) error {
	return x.timed(ctx, StepRecord, func(ctx context.Context) error {
		if err := x.ledger.SetGeneration(ctx, x.saleID, fence.Generation); err != nil {
			return err
		}
		return x.restockAt(ctx, fence)
	})
}

// publishOutboxes brings into the stream what reachable outboxes hold. What can't
// be read, or not be published in time, is void: nobody heard "won" for it.
func (x *run) publishOutboxes(ctx context.Context) error {
	return x.timed(ctx, StepPublish, func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, x.cfg.PublishTimeout)
		defer cancel()
		relayed, err := x.relay.All(limited, x.saleID)
		x.report.Read.Outboxes.add(relayed)
		x.observe.Relayed(relayed.Published)
		late := limited.Err() != nil && ctx.Err() == nil
		if late || errors.Is(err, sale.ErrCorrupt) {
			return nil
		}
		return err
	})
}

// afterwards tells the grab nodes of the switch, and applies what
// the ledger decided to give back while the run was reading. A giveback that was
// decided earlier is in the rebuilt counts; one decided after this look finds the
// sale loaded.
func (x *run) afterwards(ctx context.Context, folded Folded) error {
	x.observe.RestoredGrants(folded.Grants)
	applied := x.timed(ctx, StepGivebacks, func(ctx context.Context) error { return x.lateGivebacks(ctx, folded) })
	signalled := x.timed(ctx, StepSignal, func(context.Context) error { return x.stream.Restocked(x.saleID) })
	return errors.Join(applied, signalled)
}

func (x *run) lateGivebacks(ctx context.Context, folded Folded) error {
	var late []string
	err := x.ledger.AllGivebackIDs(ctx, x.saleID, rememberedSince(&x.sale, x.now()), func(id string, _ int64) error {
		if _, counted := folded.Givebacks[id]; !counted {
			late = append(late, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range late {
		g, err := x.ledger.GetGiveback(ctx, x.saleID, id)
		if err != nil {
			return err
		}
		if err := x.givebacks.Return(ctx, g); err != nil {
			return err
		}
		x.report.Restored.LateGivebacks++
	}
	return nil
}

// timed runs one step within its bound and records how long it took.
func (x *run) timed(ctx context.Context, step Step, do func(ctx context.Context) error) error {
	x.step(x.saleID, step)
	ctx, cancel := context.WithTimeout(ctx, x.cfg.StepTimeout)
	defer cancel()
	start := time.Now()
	err := do(ctx)
	x.took(step, time.Since(start))
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (x *run) took(step Step, d time.Duration) {
	x.report.Steps = append(x.report.Steps, StepTime{Step: step, Duration: sale.Duration(d)})
	x.observe.Step(step, d)
}
