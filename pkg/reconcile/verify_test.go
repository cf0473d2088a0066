package reconcile

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func (s *shop) verify() Verification {
	s.t.Helper()
	v, err := s.rec.Verify(s.t.Context(), s.id)
	s.must(err)
	return v
}

// lively sells, cancels, returns to rest.
func lively(t *testing.T) *shop {
	s := openShop(t, 10)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 6)
	s.adjustDown("some", 1)
	s.write(0)
	s.must(s.rec.givebacks.Return(t.Context(), s.cancel(user(5))))
	s.requireSound()
	return s
}

func TestVerifyFindsWhatIsBroken(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(s *shop, keys stock.Keys) error
		want   string // the check that fails
	}{
		"a unit too many in Redis": {
			func(s *shop, k stock.Keys) error { return s.client.Incr(s.t.Context(), k.Stock("A")).Err() }, "redis_remaining",
		},
		"an order deleted": {
			func(s *shop, _ stock.Keys) error {
				return execute(s.t, s.dsn, "DELETE FROM orders WHERE user_id = 'user1'")
			}, "grants_have_orders",
		},
		"an order made up": {
			func(s *shop, _ stock.Keys) error {
				return execute(s.t, s.dsn, `INSERT INTO orders
					(id, sale_id, user_id, idempotency_key, ip, status, items, generation, created_at, expires_at, reason, updated_at)
					SELECT '`+sale.OrderID(s.id, "x", "x")+`', sale_id, 'x', 'x', ip, status, items,
					generation, created_at, expires_at, reason, updated_at FROM orders WHERE user_id = 'user1'`)
			}, "orders_have_grants",
		},
		"a key moved to another order": {
			func(s *shop, _ stock.Keys) error {
				return execute(s.t, s.dsn, "UPDATE orders SET idempotency_key = 'other' WHERE user_id = 'user1'")
			}, "one_order_per_key",
		},
		"a buyer swapped": {
			func(s *shop, k stock.Keys) error {
				s.client.HDel(s.t.Context(), k.Buyers(), user(1))
				return s.client.HSet(s.t.Context(), k.Buyers(), "stranger", "1 x").Err()
			}, "redis_buyers",
		},
		"a user with too many units": {
			func(s *shop, k stock.Keys) error {
				return s.client.HSet(s.t.Context(), k.Buyers(), user(1), "2 x").Err()
			}, "redis_limits",
		},
		"a grant swapped in Redis": {
			func(s *shop, k stock.Keys) error {
				s.client.HDel(s.t.Context(), k.Grants(), sale.OrderID(s.id, user(1), key(user(1))))
				return s.client.HSet(s.t.Context(), k.Grants(), "stranger", "- 0\nx").Err()
			}, "redis_grants",
		},
		"a giveback of other units": {
			func(s *shop, k stock.Keys) error {
				id := sale.GivebackID(sale.FlowCancel, sale.OrderID(s.id, user(5), key(user(5))))
				return s.client.HSet(s.t.Context(), k.Applied(), id, 2).Err()
			}, "redis_givebacks",
		},
		"a flow that does not chain": {
			func(s *shop, _ stock.Keys) error {
				return execute(s.t, s.dsn, "UPDATE flows SET qty_before = qty_before + 1, qty_after = qty_after + 1 ORDER BY seq LIMIT 1")
			}, "ledger_flows_chain",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := lively(t)
			s.must(c.damage(s, stock.KeysOf(s.id)))
			v := s.verify()
			broken := slices.ContainsFunc(failed(v), func(f Check) bool { return f.Name == c.want && f.Guarantee > 0 && f.Detail != "" })
			if v.OK || !broken {
				t.Errorf("failed checks %+v, want %s among them", failed(v), c.want)
			}
		})
	}
}

func TestVerifySaysWhatIsStillMovingInsteadOfFindingFault(t *testing.T) {
	s := lively(t)
	s.grabs(10, 12)
	s.requireMoving("the ledger has written the stream through 8 of 10")
	_, err := s.decide(user(12))
	s.must(err)
	s.write(0)
	s.requireMoving("1 grab processes have batches on their outboxes")
	s.must(s.rec.RelayAll(t.Context()))
	s.write(0)
	g := s.cancel(user(10))
	s.requireMoving("giveback " + g.ID + " is not known to be applied in Redis")
	s.requireSound()
}

func (s *shop) requireMoving(what string) {
	s.t.Helper()
	v := s.verify()
	if v.AtRest || !v.OK || !slices.Contains(v.Moving, what) {
		s.t.Fatalf("at rest %v, moving %q, failed %+v; want only: %s", v.AtRest, v.Moving, failed(v), what)
	}
}

func TestVerifyOfASaleThatIsNotLoadedJudgesTheRest(t *testing.T) {
	s := lively(t)
	s.must(s.client.FlushAll(t.Context()).Err())
	v := s.verify()
	if !v.OK || v.Loaded || v.Why != stock.ReasonNoState || !check(t, v, "loaded").Informational {
		t.Errorf("verification %+v, want sound and not loaded", v)
	}
}

func TestVerifyTellsOfDeadLettersAndASoldOutSale(t *testing.T) {
	s := openShop(t, 2)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 1)
	d, err := s.decide(user(1))
	s.must(err)
	s.must(s.publish(d))
	batch, err := sale.DecodeBatch(d.Body)
	s.must(err)
	s.must(s.ledger.BuryDead(t.Context(), ledger.DeadLetter{
		SaleID: s.id, OrderID: batch.Grants[0].OrderID, Seq: s.lastSeq(), Reason: "poison",
		Record: sale.AppendGrant(nil, &batch.Grants[0]),
	}))
	v := s.requireSound()
	if n := check(t, v, "dead_letters").Numbers["open"]; n != 1 {
		t.Errorf("%d open dead letters, want 1", n)
	}
	if c := check(t, v, "sold_out"); c.Detail == "" || c.Numbers["A"] != 0 {
		t.Errorf("check %+v, want sold out", c)
	}
	// The dead letter holds its stock through a restore, and gives it back once.
	s.reconcile(ResultRestored, ReasonForced)
	s.requireState(0, 2, 2)
	g, err := s.ledger.CancelDead(t.Context(), s.id, batch.Grants[0].OrderID, "admin", "")
	s.must(err)
	s.must(s.rec.givebacks.Return(t.Context(), *g))
	s.reconcile(ResultRestored, ReasonForced)
	s.requireState(1, 2, 2)
	s.requireSound()
}

func TestVerifyKnowsOrdersFromBeforeTheStream(t *testing.T) {
	s := lively(t)
	s.recreateStream()
	s.reconcile(ResultRestored, ReasonAudit)
	v := s.requireSound()
	if n := check(t, v, "orders_have_grants").Numbers["older_than_the_stream"]; n != 6 {
		t.Errorf("%d orders are older than the stream, want 6", n)
	}
}

// An operator purges a sale's messages. Nobody can find the grants of its orders in
// the stream any more, which is no fault of the orders.
func TestVerifyKnowsOrdersThatWerePurgedFromTheStream(t *testing.T) {
	s := lively(t)
	_, err := s.nats.Conn().Request("$JS.API.STREAM.PURGE."+stream.GrantsStream, []byte(`{"filter":"grants.`+s.id+`"}`), stepLimit)
	s.must(err)
	v := s.requireSound()
	if n := check(t, v, "orders_have_grants").Numbers["older_than_the_stream"]; n != 6 {
		t.Errorf("%d orders are older than the stream, want 6", n)
	}
}

// The clocks of grab nodes say nothing about the age of the stream.
func TestVerifyMissesNoMadeUpOrderWhoseClockIsBehind(t *testing.T) {
	s := lively(t)
	s.must(execute(t, s.dsn, `INSERT INTO orders
		(id, sale_id, user_id, idempotency_key, ip, status, items, generation, created_at, expires_at, reason, updated_at)
		SELECT '`+sale.OrderID(s.id, "x", "x")+`', sale_id, 'x', 'x', ip, status, items,
		generation, created_at - INTERVAL 1 YEAR, expires_at, reason, updated_at FROM orders WHERE user_id = 'user1'`))
	if c := check(t, s.verify(), "orders_have_grants"); c.OK || c.Numbers["older_than_the_stream"] != 0 {
		t.Errorf("check %+v, want the order found to have no grant", c)
	}
}

// A message that was acknowledged and never written does not come again: that is a
// fault, not something under way.
func TestVerifyFindsAMessageThatIsSettledAndNotWritten(t *testing.T) {
	s := lively(t)
	s.grabs(10, 12)
	if c := check(t, s.verify(), "stream_written"); !c.OK {
		t.Errorf("check %+v of messages that nobody has settled", c)
	}
	consumer, err := s.stream.NewConsumer(stream.ConsumerConfig{}, func(_ context.Context, messages []stream.Message) []stream.Result {
		results := make([]stream.Result, len(messages))
		for i := range results {
			results[i] = stream.Ack()
		}
		return results
	})
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); consumer.Run(ctx) }()
	harness.Eventually(t, stepLimit, "everything to be settled", func() (bool, string) {
		status, err := s.stream.Info(t.Context())
		return err == nil && status.AckFloor == status.LastSeq, fmt.Sprint(status, err)
	})
	cancel()
	<-done
	if v := s.verify(); v.OK || check(t, v, "stream_written").OK {
		t.Errorf("verification %+v, want the unwritten message found", v)
	}
	s.requireSound() // once it is written
}
