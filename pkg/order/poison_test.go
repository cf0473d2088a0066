package order_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// refusals are the ways in which a database may refuse the order of one user,
// and go on doing so until it is cured.
var refusals = map[string]struct{ refuse, cure string }{
	"an error that blames the row": {
		refuse: "ALTER TABLE orders ADD CONSTRAINT refusal CHECK (user_id <> 'poison')",
		cure:   "ALTER TABLE orders DROP CONSTRAINT refusal",
	},
	"an error nobody knows": {
		refuse: `CREATE TRIGGER refusal BEFORE INSERT ON orders FOR EACH ROW
			IF NEW.user_id = 'poison' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by a trigger'; END IF`,
		cure: "DROP TRIGGER refusal",
	},
}

func TestPoisonousGrantDiesAfterItsRetriesAndReplayBringsItIn(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			d := openDesk(t, 1000)
			d.exec(refusal.refuse)
			poison := d.grant("poison", "A", 1)
			seq := d.publish(append(d.crowd("mate", 40), poison)...)
			last := d.publish(d.crowd("next", 40)...)

			watch := &deliveries{Stream: d.stream}
			stop := d.workWith(quick, d.ledger, watch)
			d.awaitProgress(last)
			d.awaitSettled()
			stop()
			d.requireOneOrderEach(80)
			watch.requireGrowingDelays(t, seq, quick)

			letters := get[[]ledger.DeadLetter](t)(d.ledger.ListDead(t.Context(), d.sale.ID, "", 10))
			if len(letters) != 1 || letters[0].OrderID != poison.OrderID || letters[0].Attempts != quick.MaxDeliveries ||
				letters[0].Status != ledger.DeadOpen || letters[0].Seq != seq {
				t.Fatalf("dead letters in the table: %+v", letters)
			}
			inStream := get[[]stream.DeadLetter](t)(d.stream.DeadLetters(t.Context(), d.sale.ID, 0, 10))
			if len(inStream) != 1 || !bytes.Equal(inStream[0].Data, sale.AppendGrant(nil, &poison)) || inStream[0].SourceSeq != seq {
				t.Fatalf("dead letters in the stream: %+v", inStream)
			}

			desk := order.NewDeadLetters(d.ledger, &returns{}, d.log)
			if _, err := desk.Replay(t.Context(), d.sale.ID, poison.OrderID); err == nil {
				t.Fatal("a replay succeeded while the cause was there")
			}
			d.exec(refusal.cure)
			for range 2 { // a replay may be repeated
				get[ledger.Result](t)(desk.Replay(t.Context(), d.sale.ID, poison.OrderID))
			}
			d.requireOneOrderEach(81)
			listed := get[[]ledger.DeadLetter](t)(desk.List(t.Context(), d.sale.ID, "", 10))
			if listed[0].Status != ledger.DeadReplayed {
				t.Errorf("the letter is %s, want replayed", listed[0].Status)
			}
		})
	}
}

func TestBatchMatesOfPoisonGetTheirOrdersInTheSameDelivery(t *testing.T) {
	d := openDesk(t, 1000)
	d.exec(refusals["an error that blames the row"].refuse)
	early := append(d.crowd("early", 20), d.grant("poison", "A", 1))
	d.publish(append(early, d.crowd("late", 20)...)...)
	d.publish(append(d.crowd("other", 40), d.grant("nobody", "NOT-AN-ITEM", 1))...)

	// Nothing comes a second time within this test.
	d.work(order.WorkerConfig{RetryBase: time.Hour, RetryMax: time.Hour})
	harness.Eventually(t, wait, "the mates' orders", func() (bool, string) {
		n := d.orders(sale.OrderPendingPayment)
		return n == 80, fmt.Sprint(n)
	})
	d.requireOneOrderEach(80)
	if n := d.count("SELECT COUNT(*) FROM dead_letters"); n != 0 {
		t.Errorf("%d dead letters after one delivery, want none", n)
	}
}

func TestMessageThatCannotBeReadDiesAtOnce(t *testing.T) {
	d := openDesk(t, 10)
	log := &records{}
	d.log = log.logger()
	seq := d.publishRaw([]byte("DB1 1 1 1 p\ngarbage"))
	last := d.publish(d.crowd("crowd", 3)...)
	d.work(order.WorkerConfig{RetryBase: time.Hour, RetryMax: time.Hour})
	d.awaitProgress(last)
	d.awaitSettled()

	d.requireOneOrderEach(3)
	letters := get[[]ledger.DeadLetter](t)(d.ledger.ListDead(t.Context(), d.sale.ID, "", 10))
	if len(letters) != 1 || letters[0].Seq != seq || letters[0].Attempts != 1 || string(letters[0].Record) != "DB1 1 1 1 p\ngarbage" {
		t.Fatalf("dead letters: %+v", letters)
	}
	inStream := get[[]stream.DeadLetter](t)(d.stream.DeadLetters(t.Context(), d.sale.ID, 0, 10))
	if len(inStream) != 1 || inStream[0].SourceSeq != seq {
		t.Fatalf("dead letters in the stream: %+v", inStream)
	}
	harness.Eventually(t, wait, "it is counted and logged", func() (bool, string) {
		return testutil.ToFloat64(d.metrics.DeadLetters) == 1 && log.count("ERROR grant became a dead letter") == 1, log.String()
	})
}

func TestCancelledDeadLetterGivesItsStockBackOnce(t *testing.T) {
	d := openDesk(t, 100)
	refusal := refusals["an error that blames the row"]
	d.exec(refusal.refuse)
	poison := d.grant("poison", "A", 2)
	d.work(quick)
	d.awaitProgress(d.publish(poison))
	d.exec(refusal.cure)

	back := &returns{err: fmt.Errorf("redis is away")} // must not fail the cancel
	desk := order.NewDeadLetters(d.ledger, back, d.log)
	for range 2 {
		must(t, desk.Cancel(t.Context(), d.sale.ID, poison.OrderID, "operator", "broken"))
	}
	if status := d.status(poison.OrderID); status != sale.OrderCancelled {
		t.Errorf("the order is %s, want cancelled", status)
	}
	if len(back.all) != 2 || back.all[0].ID != back.all[1].ID || len(back.all[0].Lines) != 1 || back.all[0].Lines[0].Quantity != 2 {
		t.Errorf("returned %+v, want one giveback of 2 units, twice", back.all)
	}
	if n := d.count("SELECT sold FROM items WHERE sku = 'A'"); n != 0 {
		t.Errorf("%d units sold, want 0", n)
	}
	if n := d.count("SELECT COUNT(*) FROM givebacks"); n != 1 {
		t.Errorf("%d givebacks, want 1", n)
	}
}

// deliveries is a stream that remembers when its worker was handed what.
type deliveries struct {
	*stream.Stream
	mu  sync.Mutex
	all []deliveredAt
}

type deliveredAt struct {
	seq    uint64
	number int
	at     time.Time
}

func (d *deliveries) NewConsumer(cfg stream.ConsumerConfig, handle stream.Handler) (*stream.Consumer, error) {
	return d.Stream.NewConsumer(cfg, func(ctx context.Context, messages []stream.Message) []stream.Result {
		d.mu.Lock()
		for i := range messages {
			d.all = append(d.all, deliveredAt{messages[i].Seq, messages[i].NumDelivered, time.Now()})
		}
		d.mu.Unlock()
		return handle(ctx, messages)
	})
}

// requireGrowingDelays holds that a message came as often as the settings say,
// each time no sooner than the shortest delay that they allow.
func (d *deliveries) requireGrowingDelays(t *testing.T, seq uint64, cfg order.WorkerConfig) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var before deliveredAt
	for _, now := range d.all {
		if now.seq != seq {
			continue
		}
		if now.number != before.number+1 {
			t.Fatalf("delivery %d follows delivery %d", now.number, before.number)
		}
		least := min(cfg.RetryBase<<max(now.number-2, 0), cfg.RetryMax) / 2
		if gap := now.at.Sub(before.at); now.number > 1 && gap < least {
			t.Errorf("delivery %d came %s after the one before it, want at least %s", now.number, gap, least)
		}
		before = now
	}
	if before.number != cfg.MaxDeliveries {
		t.Errorf("%d deliveries, want %d", before.number, cfg.MaxDeliveries)
	}
}
