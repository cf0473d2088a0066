package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func (s *shop) wish(units int64, ref string) ledger.StockChange {
	return ledger.StockChange{SaleID: s.id, SKU: "A", Stock: units, Ref: ref, Actor: "ops", Reason: "test"}
}

// setStock requires a change to end with this stock.
func (s *shop) setStock(units int64, ref string, want int64) {
	s.t.Helper()
	set, err := s.rec.SetStock(s.t.Context(), s.wish(units, ref))
	s.must(err)
	if set.After != want || set.Asked != units {
		s.t.Fatalf("the stock is %+v, want %d", set, want)
	}
}

func TestSoldOutStockBecomesUnlimited(t *testing.T) {
	s := openShop(t, 2)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.sellOut(0, 2)
	s.setStock(sale.Unlimited, "open", sale.Unlimited)
	s.requireState(sale.Unlimited, 2, 2)
	s.grabs(2, 50)
	s.requireSound()
}

func TestABoundLeavesExactlyTheRestToBeSold(t *testing.T) {
	s := openShop(t, sale.Unlimited)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 5)
	s.setStock(8, "bound", 8)
	s.requireState(3, 5, 5)
	s.sellOut(5, 3)
	s.requireSound()
}

// What the ledger has written, what only the stream has, and what stands on an outbox
// only: all of it is sold.
func TestABoundBelowWhatIsSoldIsWhatIsSold(t *testing.T) {
	s := openShop(t, sale.Unlimited)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 4)
	s.write(0)
	s.cancel(user(0)) // Redis does not hear of it
	s.grabs(4, 6)
	_, err := s.decide(user(6))
	s.must(err)
	s.setStock(1, "bound", 6)
	s.requireState(0, 7, 7)
	if codes := s.grab("one more"); codes != "S" {
		t.Fatalf("one more got %s, want S", codes)
	}
	s.requireSound()
}

// A reduction was granted while the stock was limited, and is still on its way, written
// behind a message that is not, or a dead letter when the stock, unlimited in between, gets a
// bound. As many are sold as were asked for, neither more nor fewer.
func TestAReductionFromBeforeTheStockWasUnlimitedLeavesTheNewBoundAlone(t *testing.T) {
	grantOf := func(s *shop, seq uint64) (message ledger.Message) {
		s.must(s.stream.ReadGrants(s.t.Context(), s.id, seq-1, seq, func(_ uint64, batch sale.Batch) error {
			message = ledger.Message{Seq: seq, SaleID: s.id, Batch: batch}
			return nil
		}))
		return message
	}
	for name, meanwhile := range map[string]func(s *shop, seq uint64){
		"on its way": func(*shop, uint64) {},
		"written behind one that is not": func(s *shop, seq uint64) {
			status, err := s.stream.Info(s.t.Context())
			s.must(err)
			_, err = s.ledger.Record(s.t.Context(), ledger.Batch{
				StreamID: status.StreamID, Messages: []ledger.Message{grantOf(s, seq)}, Done: []ledger.Range{{First: seq, Last: seq}},
			})
			s.must(err)
		},
		"a dead letter": func(s *shop, seq uint64) {
			m := grantOf(s, seq)
			g := &m.Batch.Grants[0]
			s.must(s.ledger.BuryDead(s.t.Context(), ledger.DeadLetter{
				SaleID: s.id, OrderID: g.OrderID, Seq: seq, Generation: m.Batch.Generation, Reason: "unlucky", Record: sale.AppendGrant(nil, g),
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, 10)
			s.reconcile(ResultRestored, stock.ReasonNoState)
			s.grabs(0, 3)
			if codes := s.adjustDown("late", 5); codes != "W" {
				t.Fatalf("the reduction got %s, want W", codes)
			}
			seq := s.lastSeq()
			s.setStock(sale.Unlimited, "open", sale.Unlimited)
			meanwhile(s, seq)
			s.setStock(5, "bound", 5)
			s.requireState(2, 3, 4)
			s.write(0)
			s.reconcile(ResultRestored, ReasonForced)
			s.requireState(2, 3, 4)
			s.sellOut(3, 2)
			s.requireSound()
		})
	}
}

// The run may end at any step; whoever asks again with the same ref gets the same
// answer, and nothing is sold that is not there.
func TestAStockThatIsSetHalfWayIsCompletedByTheNext(t *testing.T) {
	s := openShop(t, 1)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	next := 0
	for _, step := range Steps {
		t.Run(string(step), func(t *testing.T) {
			s.t = t
			s.setStock(sale.Unlimited, "open-"+string(step), sale.Unlimited)
			s.grabs(next, next+2)
			s.write(0)
			s.grabs(next+2, next+3)
			next += 3
			ctx, die := context.WithCancel(t.Context())
			victim := s.reconciler()
			victim.step = func(_ string, at Step) {
				if at == step {
					die()
				}
			}
			bound := s.wish(int64(next+1), "bound-"+string(step))
			if _, err := victim.SetStock(ctx, bound); err == nil && step != StepSignal { // a signal waits for nothing
				t.Fatal("the run survived")
			}
			harness.Eventually(t, stepLimit, "the stock is set", func() (bool, string) {
				set, err := s.rec.SetStock(t.Context(), bound)
				return err == nil && set.After == int64(next+1), fmt.Sprint(set, err)
			})
			s.reconcile(ResultHealthy, ReasonAudit)
			s.sellOut(next, 1)
			next++
			s.requireSound()
		})
	}
}

// gate holds a reconciler back between the ledger's generation and its fence.
type gate struct {
	unleased
	reached, open chan struct{}
}

func (g gate) BeginGeneration(ctx context.Context, saleID string, atLeast int64) (stream.Fence, error) {
	close(g.reached)
	<-g.open
	return g.Stream.BeginGeneration(ctx, saleID, atLeast)
}

// A rival reconciler restores the sale, with the old stock, behind the fence of the run
// that is about to set a bound, and a crowd buys. The run must not set its bound by
// what was sold before.
func TestABoundIsNotSetByWhatWasSoldBeforeARivalRestored(t *testing.T) {
	for name, early := range map[string]bool{"the rival takes its number first": true, "the rival comes later": false} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, sale.Unlimited)
			s.reconcile(ResultRestored, stock.ReasonNoState)
			s.grabs(0, 3)
			rival := s.reconciler()
			world := gate{unleased{s.stream, "-rival"}, make(chan struct{}), make(chan struct{})}
			rival.stream = world
			restored := make(chan error, 1)
			run := func() {
				report, err := rival.Reconcile(context.Background(), s.id, ReasonForced)
				if err == nil && report.Result != ResultRestored {
					err = errors.New(string(report.Result))
				}
				restored <- err
			}
			if early {
				go run()
				<-world.reached
			}
			overtaken := false
			s.rec.step = func(_ string, step Step) {
				if step != StepRecord || overtaken {
					return
				}
				overtaken = true
				if !early {
					go run()
				}
				close(world.open)
				s.must(<-restored)
				s.grabs(3, 9)
			}
			s.setStock(5, "bound", 9)
			if !overtaken {
				t.Fatal("nobody came in between")
			}
			if codes := s.grab("one more"); codes != "S" {
				t.Fatalf("one more got %s, want S", codes)
			}
			s.requireSound()
		})
	}
}

// A rival that took its number before, and fences after, reads the new stock.
func TestARivalThatComesLateRestoresTheNewStock(t *testing.T) {
	s := openShop(t, sale.Unlimited)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 3)
	rival := s.reconciler()
	world := gate{unleased{s.stream, "-rival"}, make(chan struct{}), make(chan struct{})}
	rival.stream = world
	restored := make(chan error, 1)
	go func() {
		_, err := rival.Reconcile(context.Background(), s.id, ReasonForced)
		restored <- err
	}()
	<-world.reached
	s.rec.step = func(_ string, step Step) {
		if step == StepMint { // the ledger has the bound
			close(world.open)
			s.must(<-restored)
			s.rec.step = func(string, Step) {}
		}
	}
	s.setStock(5, "bound", 5)
	s.sellOut(3, 2)
	s.requireSound()
}

// The stock goes from limited to unlimited and back while a crowd grabs, with and
// without a worker that keeps up. Never is more sold than the last bound.
func TestTheStockIsSetAgainAndAgainUnderACrowd(t *testing.T) {
	const changes = 12
	s := openShop(t, sale.Unlimited)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	setter := s.reconciler()
	var done atomic.Int64
	failure := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < changes && err == nil; i++ {
			units := sale.Unlimited
			if i%2 == 0 {
				units = int64(40 * (i + 1))
			}
			_, err = setter.SetStock(context.Background(), s.wish(units, fmt.Sprint("change-", i)))
			done.Add(1)
		}
		if err == nil {
			_, err = setter.SetStock(context.Background(), s.wish(0, "last"))
		}
		failure <- err
	}()
	next, won := 0, 0
	grabSome := func() {
		for range 20 {
			next++
			d, err := s.decide(user(next))
			if err == nil && codesOf(d) == "W" && s.publish(d) == nil {
				won++
			}
		}
	}
	harness.Eventually(t, time.Minute, "all changes", func() (bool, string) {
		grabSome()
		if done.Load()%4 < 2 {
			s.write(0)
		}
		return done.Load() == changes, fmt.Sprint(done.Load(), " changes, ", won, " won")
	})
	s.must(<-failure)
	grabSome()
	s.reconcile(ResultHealthy, ReasonAudit)
	v := s.requireSound()
	known, err := s.ledger.StockSet(t.Context(), s.id, "A", "last")
	s.must(err)
	orders := check(t, v, "orders_have_grants").Numbers["orders"]
	if known.After != orders || int64(won) > orders || won == 0 {
		t.Errorf("the last bound is %d, %d were told that they won, there are %d orders", known.After, won, orders)
	}
}
