package reconcile

import (
	"context"
	"errors"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestASaleIsLoadedForTheFirstTimeByARestore(t *testing.T) {
	s := openShop(t, 3)
	s.requireNotLoaded(stock.ReasonNoState)
	report := s.reconcile(ResultRestored, stock.ReasonNoState)
	if report.Found.Why != stock.ReasonNoState || report.Generation != 1 || report.Restored.Remaining["A"] != 3 {
		t.Errorf("report %+v, want no_state, generation 1 and 3 units", report)
	}
	s.sellOut(0, 3)
	s.requireSound()
}

func TestALoadedSaleIsLeftAloneUnlessForced(t *testing.T) {
	s := openShop(t, 3)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.reconcile(ResultHealthy, stock.ReasonNewServer)
	if gen := s.state().Generation; gen != 1 {
		t.Errorf("generation %d after a run with nothing to do, want 1", gen)
	}
	s.reconcile(ResultRestored, ReasonForced)
	if gen := s.state().Generation; gen != 2 {
		t.Errorf("generation %d after a forced run, want 2", gen)
	}
}

func TestEverySaleButADraftIsLoaded(t *testing.T) {
	s := openShop(t, 3)
	for status, want := range map[sale.Status]Result{
		sale.StatusDraft: ResultNotLoadable, sale.StatusEnded: ResultRestored, sale.StatusPaused: ResultRestored,
	} {
		s.id = harness.Name(t)
		s.create(s.id, 3, status)
		s.reconcile(want, ReasonForced)
	}
}

// forgetful fails to tell the last fence once.
type forgetful struct {
	*stream.Stream
	failed bool
}

func (f *forgetful) LastFence(ctx context.Context, saleID string) (stream.Fence, error) {
	if !f.failed {
		f.failed = true
		return stream.Fence{}, stream.ErrNotConnected
	}
	return f.Stream.LastFence(ctx, saleID)
}

func TestAProbeThatFailsOnceDoesNotRebuildAHealthySale(t *testing.T) {
	s := openShop(t, 3)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 1)
	s.rec.stream = &forgetful{Stream: s.stream}
	if report := s.reconcile(ResultHealthy, ReasonAudit); report.Attempts != 0 || !report.Found.Loaded {
		t.Errorf("report %+v, want the sale found loaded and no attempt", report)
	}
	if gen := s.state().Generation; gen != 1 {
		t.Errorf("generation %d after a run with nothing to do, want 1", gen)
	}
	s.sellOut(1, 2)
	s.requireSound()
}

// Of seven grants three are in the ledger, two only in the stream, two only on the
// outbox: a loss of all of Redis costs the last two, which nobody was told of.
func TestFlushedRedisGetsBackEveryDurableGrant(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 3)
	s.write(0)
	s.grabs(3, 5)
	if _, err := s.decide(user(5), user(6)); err != nil {
		t.Fatal(err)
	}
	s.must(s.client.FlushAll(t.Context()).Err())
	s.requireNotLoaded(stock.ReasonNoState)

	report := s.reconcile(ResultRestored, stock.ReasonNoState)
	if report.Read.Orders != 3 || report.Restored.FromStream != 2 || report.Generation != 2 {
		t.Errorf("report %+v, want 3 orders and 2 grants of the stream in generation 2", report)
	}
	s.requireState(5, 5, 5)
	if codes := s.grab(user(0), user(4), user(6)); codes != "RRW" {
		t.Errorf("an order, a grant of the stream and a lost one answer %s, want RRW", codes)
	}
	s.sellOut(7, 4)
	s.requireSound()
}

func TestLostBuyersKeyIsNoticedAndRebuilt(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 4)
	s.must(s.client.Del(t.Context(), stock.KeysOf(s.id).Buyers()).Err())
	s.requireNotLoaded(stock.ReasonDamaged)
	report := s.reconcile(ResultRestored, stock.ReasonDamaged)
	d := report.Differences
	if d == nil || d.Buyers == nil || d.Buyers.Before != 0 || d.Buyers.After != 4 || d.Grants != nil || len(d.Remaining) != 0 {
		t.Errorf("differences %+v, want 0 -> 4 buyers and nothing else", d)
	}
	if codes := s.grab(user(0)); codes != "R" {
		t.Errorf("a known buyer got %s, want R", codes)
	}
	s.sellOut(4, 6)
	s.requireSound()
}

func TestAKeyOfAnotherTypeIsRebuilt(t *testing.T) {
	s := openShop(t, 3)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 1)
	s.must(s.client.Set(t.Context(), stock.KeysOf(s.id).Buyers(), "garbage", 0).Err())
	if report := s.reconcile(ResultRestored, stock.ReasonDamaged); report.Found.Why != stock.ReasonDamaged {
		t.Errorf("found %+v, want damaged", report.Found)
	}
	s.sellOut(1, 2)
	s.requireSound()
}

func TestRestartedRedisIsNotTrustedWithOrWithoutItsFile(t *testing.T) {
	for name, options := range map[string][]harness.RedisOption{"memory": nil, "append-only file": {harness.WithAOF()}} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, 5, options...)
			s.reconcile(ResultRestored, stock.ReasonNoState)
			s.grabs(0, 2)
			s.redis.Kill()
			s.redis.Start()
			if _, err := s.decide("nobody"); !errors.As(err, new(*stock.NotLoaded)) {
				t.Fatalf("a grab on a restarted server answered %v, want not loaded", err)
			}
			s.reconcile(ResultRestored, stock.ReasonNewServer)
			s.requireState(3, 2, 2)
			s.sellOut(2, 3)
			s.requireSound()
		})
	}
}

func TestOutboxIsPublishedBeforeTheFence(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	d, err := s.decide(user(0))
	s.must(err)
	report := s.reconcile(ResultRestored, ReasonForced)
	if report.Read.Outboxes.Published != 1 || report.Restored.FromStream != 1 {
		t.Errorf("report %+v, want one batch published and its grant restored", report)
	}
	s.requireState(4, 1, 1)
	if err := s.publish(d); err != nil && !errors.Is(err, stream.ErrFenced) {
		t.Errorf("the process's own attempt failed with %v", err)
	}
	s.requireState(4, 1, 1)
	s.sellOut(1, 4)
	s.requireSound()
}

func TestAGrantThatWasFencedOutIsVoid(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	d, err := s.decide(user(0))
	s.must(err)
	_, err = s.stream.BeginGeneration(t.Context(), s.id, 0)
	s.must(err)
	if err := s.publish(d); !errors.Is(err, stream.ErrFenced) {
		t.Fatalf("publishing behind a fence answered %v", err)
	}
	report := s.reconcile(ResultRestored, "fenced")
	if report.Found.Why != WhyFenceMoved || report.Read.Outboxes.Fenced != 1 || len(report.Read.Outboxes.Samples) != 1 {
		t.Errorf("report %+v, want a moved fence and one void batch", report)
	}
	if d := report.Differences; d == nil || len(d.VoidedOrders) != 1 || len(d.Remaining) != 1 || d.Remaining[0].Before != 4 {
		t.Errorf("differences %+v, want the void order and its unit", d)
	}
	s.requireState(5, 0, 0)
	s.sellOut(1, 5)
	s.requireSound()
}

// The ledger has orders beyond the progress it recorded: the stream is read from
// too early, and nothing counts twice.
func TestProgressMayLagBehindTheOrders(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 4)
	s.write(0)
	other := openLedger(t, s.dsn)
	s.must(execute(t, s.dsn, "DELETE FROM progress"))
	s.must(other.Ping(t.Context()))
	s.must(s.client.FlushAll(t.Context()).Err())
	report := s.reconcile(ResultRestored, stock.ReasonNoState)
	if report.Read.Progress != 0 || report.Read.TailMessages != 4 || report.Restored.FromStream != 0 {
		t.Errorf("report %+v, want the whole stream read and nothing new in it", report)
	}
	s.requireState(6, 4, 4)
	s.sellOut(4, 6)
	s.requireSound()
}

// A stream that was made anew counts its sequences from 1 again: the old progress
// must not hide its messages, and generations go on growing.
func TestANewStreamDoesNotInheritProgress(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.reconcile(ResultRestored, ReasonForced)
	s.grabs(0, 4)
	s.write(0)
	s.recreateStream()
	report := s.reconcile(ResultRestored, ReasonAudit)
	if report.Generation < 3 || report.Read.Progress != 0 {
		t.Errorf("report %+v, want generation 3 and no progress", report)
	}
	s.grabs(4, 6) // not written: only the new stream has them
	s.must(s.client.FlushAll(t.Context()).Err())
	if report := s.reconcile(ResultRestored, stock.ReasonNoState); report.Restored.FromStream != 2 {
		t.Errorf("report %+v, want 2 grants of the new stream", report)
	}
	s.requireState(4, 6, 6)
	s.sellOut(6, 4)
	s.requireSound()
}

func (s *shop) recreateStream() {
	s.t.Helper()
	_, err := s.nats.Conn().Request("$JS.API.STREAM.DELETE."+stream.GrantsStream, nil, stepLimit)
	s.must(err)
	s.stream = openStream(s.t, s.nats.URL())
	s.must(s.stream.AwaitTopology(s.t.Context()))
	s.rec = s.reconciler()
}

func TestAGivebackDecidedWhileReadingIsAppliedOnce(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 3)
	s.write(0)
	before := s.cancel(user(0)) // decided before the run, never applied
	var during sale.Giveback
	s.rec.step = func(_ string, step Step) {
		if step == StepCommit {
			during = s.cancel(user(1))
			// Whoever decided it calls Return, finds the sale closed, and goes home.
			s.must(s.rec.givebacks.Return(context.Background(), during))
		}
	}
	report := s.reconcile(ResultRestored, ReasonForced)
	s.rec.step = func(string, Step) {}
	if report.Restored.LateGivebacks != 1 {
		t.Errorf("%d late givebacks, want 1", report.Restored.LateGivebacks)
	}
	s.requireState(4, 3, 3)
	for _, g := range []sale.Giveback{before, during, before} {
		s.must(s.rec.givebacks.Return(t.Context(), g))
	}
	s.requireState(4, 3, 3)
	s.sellOut(3, 4)
	s.requireSound()
}

// Two reconcilers: one is frozen before its switch, the other has begun the next
// generation and read the ledger. A cancellation that is decided now must not be
// applied to the earlier one's state, marked, and then be missing in the later one's
// when that reconciler dies before it looks for late givebacks.
func TestAGivebackIsNotLostBetweenTwoReconcilers(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 3)
	s.write(0)
	frozen, thawed, switched := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	first := s.reconciler()
	first.cfg.MaxAttempts = 1
	first.stream = unleased{s.stream, "-first"}
	first.step = func(_ string, step Step) {
		if step == StepCommit {
			close(frozen)
			<-thawed
		}
	}
	go func() {
		_, err := first.Reconcile(context.Background(), s.id, ReasonForced)
		switched <- err
	}()
	<-frozen
	ctx, die := context.WithCancel(t.Context())
	defer die()
	s.rec.step = func(_ string, step Step) {
		switch step {
		case StepCommit:
			close(thawed)
			if err := <-switched; !errors.As(err, new(*stock.OlderGeneration)) {
				t.Errorf("the earlier generation's switch ended with %v, want it refused", err)
			}
			s.must(s.rec.givebacks.Return(context.Background(), s.cancel(user(0))))
		case StepGivebacks:
			die()
		}
	}
	if report, err := s.rec.Reconcile(ctx, s.id, ReasonForced); err == nil || report.Result != ResultRestored {
		t.Fatalf("the run ended %s with %v, want it to die after its switch", report.Result, err)
	}
	s.rec.step = func(string, Step) {}
	s.requireState(2, 3, 3)
	s.must(s.rec.RelayAll(t.Context()))
	s.requireState(3, 3, 3)
	s.requireSound()
}

// A cancelled order's key goes on naming it after a restore.
func TestKeysOfEndedOrdersAreRestored(t *testing.T) {
	s := openShop(t, 2)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 1)
	s.write(0)
	s.must(s.rec.givebacks.Return(t.Context(), s.cancel(user(0))))
	s.must(s.client.FlushAll(t.Context()).Err())
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.requireState(2, 1, 1)
	if codes := s.grab(user(0)); codes != "R" {
		t.Errorf("the key of a cancelled order answers %s, want R", codes)
	}
	s.requireSound()
}

func TestRedisThatMovesBeforeTheSwitchBeginsANewAttempt(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	kills := 0
	s.rec.step = func(_ string, step Step) {
		if step == StepCommit && kills == 0 {
			kills++
			s.redis.Kill()
			s.redis.Start()
		}
	}
	report := s.reconcile(ResultRestored, ReasonForced)
	if report.Attempts != 2 || report.Generation != 3 {
		t.Errorf("%d attempts to generation %d, want 2 to 3", report.Attempts, report.Generation)
	}
	s.sellOut(2, 3)
	s.requireSound()
}

func TestRedisThatStaysAwayFailsAfterBoundedProbes(t *testing.T) {
	s := openShop(t, 5)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.redis.Kill()
	report, err := s.rec.Reconcile(t.Context(), s.id, stock.ReasonNewServer)
	probes := 0
	for _, step := range report.Steps {
		if step.Step == StepProbe {
			probes++
		}
	}
	if err == nil || report.Result != ResultFailed || report.Attempts != 0 || probes != 3 {
		t.Errorf("ended %s after %d probes and %d attempts with %v, want failed after 3 and 0", report.Result, probes, report.Attempts, err)
	}
	s.redis.Start()
	s.reconcile(ResultRestored, stock.ReasonNewServer)
	s.sellOut(2, 3)
	s.requireSound()
}

func TestAdjustmentsAreCountedOnceWhereverTheyStand(t *testing.T) {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.adjustDown("written", 3)
	s.write(0)
	s.adjustDown("in the stream", 2)
	s.must(s.client.FlushAll(t.Context()).Err())
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.requireState(3, 2, 4)
	up, err := s.ledger.AdjustUp(t.Context(), adjustment(s.id, 1))
	s.must(err)
	s.must(s.rec.givebacks.Return(t.Context(), *up.Giveback))
	s.reconcile(ResultRestored, ReasonForced)
	s.requireState(4, 2, 4)
	if codes := s.adjustDown("written", 3); codes != "R" {
		t.Errorf("an adjustment asked for again got %s, want R", codes)
	}
	s.sellOut(2, 4)
	s.requireSound()
}

func (s *shop) adjustDown(name string, units int64) (codes string) {
	s.t.Helper()
	s.number++
	g := &sale.Grant{
		Kind: sale.GrantAdjust, OrderID: sale.OrderID(s.id, "admin", name), Key: sale.AdjustmentNote("admin", name),
		At: s.rec.now(), Lines: []sale.Line{{SKU: "A", Quantity: units}},
	}
	d, err := s.store.Grab(s.t.Context(), stock.Batch{
		SaleID: s.id, Process: s.process, Number: s.number,
		Asks: []stock.Ask{{Grant: g, Record: sale.AppendGrant(nil, g)}},
	})
	s.must(err)
	if d.Body != nil {
		s.must(s.publish(d))
	}
	return codesOf(d)
}
