package order_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// keen settings publish at once.
var keen = order.PublisherConfig{Page: 50, Interval: 5 * time.Millisecond, LeaseTTL: time.Second, RetryMax: 50 * time.Millisecond}

func eventMetrics() *telemetry.EventMetrics {
	return telemetry.NewEventMetrics(prometheus.NewRegistry(), sale.EventKindNames())
}

// tell runs a publisher until stop is called or the test ends.
func (d *desk) tell(l order.EventLedger, s order.EventStream, metrics *telemetry.EventMetrics) (stop func()) {
	d.t.Helper()
	p := get[*order.Publisher](d.t)(order.NewPublisher(keen, l, s, metrics, d.log))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			d.t.Errorf("publisher: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	d.t.Cleanup(stop)
	return stop
}

// sell writes orders of one unit of A each, past the stream of grants.
func (d *desk) sell(prefix string, n int) []sale.Grant {
	d.t.Helper()
	grants := d.crowd(prefix, n)
	d.batches++
	get[ledger.Result](d.t)(d.ledger.Record(d.t.Context(), ledger.Batch{Messages: []ledger.Message{{
		Seq: d.batches, SaleID: d.sale.ID, Batch: sale.Batch{BatchHead: sale.BatchHead{Generation: 1, Process: "desk"}, Grants: grants},
	}}}))
	return grants
}

// awaitTold waits until no event is left in the ledger.
func (d *desk) awaitTold() {
	d.t.Helper()
	harness.Eventually(d.t, wait, "every event is published", func() (bool, string) {
		n := d.count("SELECT COUNT(*) FROM events")
		return n == 0, fmt.Sprint(n)
	})
}

// stories reads the stream of events: what it tells of each order, in its order.
func (d *desk) stories() map[string]string {
	d.t.Helper()
	s := get[jetstream.Stream](d.t)(d.js().Stream(d.t.Context(), stream.EventsStream))
	state := get[*jetstream.StreamInfo](d.t)(s.Info(d.t.Context())).State
	told := make(map[string][]string)
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		msg := get[*jetstream.RawStreamMsg](d.t)(s.GetMsg(d.t.Context(), seq))
		var e sale.Event
		must(d.t, json.Unmarshal(msg.Data, &e))
		kind := strings.TrimPrefix(e.Type, "order.")
		if msg.Subject != "orders."+kind || msg.Header.Get(jetstream.MsgIDHeader) != e.ID {
			d.t.Errorf("event %s of kind %s is on %s as %s", e.ID, kind, msg.Subject, msg.Header.Get(jetstream.MsgIDHeader))
		}
		told[e.Data.ID] = append(told[e.Data.ID], kind)
	}
	stories := make(map[string]string, len(told))
	for id, kinds := range told {
		stories[id] = strings.Join(kinds, " ")
	}
	return stories
}

// live puts orders through their lives and returns what must be told of each.
func (d *desk) live(prefix string, n int) map[string]string {
	d.t.Helper()
	want := make(map[string]string)
	for i, g := range d.sell(prefix, n) {
		switch i % 3 {
		case 0:
			want[g.OrderID] = "created"
		case 1:
			_, _, err := d.ledger.Cancel(d.t.Context(), g.OrderID, "test", "")
			must(d.t, err)
			want[g.OrderID] = "created cancelled"
		case 2:
			get[sale.Order](d.t)(d.ledger.Pay(d.t.Context(), g.OrderID))
			must(d.t, d.ledger.Fulfil(d.t.Context(), ledger.Delivery{OrderID: g.OrderID}))
			want[g.OrderID] = "created paid fulfilled"
		}
	}
	return want
}

// requireStories holds that the stream tells each story once and in order.
func (d *desk) requireStories(want map[string]string) {
	d.t.Helper()
	got := d.stories()
	if len(got) != len(want) {
		d.t.Errorf("the stream tells of %d orders, want %d", len(got), len(want))
	}
	for id, story := range want {
		if got[id] != story {
			d.t.Errorf("of order %s the stream tells %q, want %q", id, got[id], story)
		}
	}
}

func TestWhatHappensToOrdersIsOnTheStreamOnceAndInOrder(t *testing.T) {
	harness.SharedMariaDB(t) // outlives the test
	harness.NoLeaks(t)
	d := openDesk(t, 10_000)
	metrics := eventMetrics()
	before := d.live("before", 90) // more than a page
	d.tell(d.ledger, d.stream, metrics)
	d.tell(d.openLedger(), d.openStream(), metrics) // of another process
	maps.Copy(before, d.live("meanwhile", 90))
	d.awaitTold()
	d.requireStories(before)
	if n := testutil.ToFloat64(metrics.Published.Of("fulfilled")); n != 60 {
		t.Errorf("counted %v orders told to be fulfilled, want 60", n)
	}
}

// forgetful is a ledger that does not hear of what is published, as if the
// process died in between.
type forgetful struct {
	order.EventLedger
	asked chan int
}

func (f *forgetful) SettleEvents(_ context.Context, events []ledger.Event) (int, error) {
	select {
	case f.asked <- len(events):
	default:
	}
	return 0, errors.New("the process died")
}

func TestACrashAfterPublishingRepeatsNothingOnTheStreamAndQueuesEachDeliveryOnce(t *testing.T) {
	d := openDesk(t, 10_000)
	_, err := d.ledger.EditSale(t.Context(), d.sale.ID, ledger.Cause{Actor: "test"}, func(s *sale.Sale) error {
		s.Fulfilment = &sale.Fulfilment{
			URL: "http://shop.example/hook", Trigger: sale.FulfilPaid, GiveUpAfter: sale.Duration(time.Hour), OnFailure: sale.FailurePark,
		}
		return nil
	})
	must(t, err)
	want := d.live("buyer", 30)
	crashing := &forgetful{EventLedger: d.ledger, asked: make(chan int, 1)}
	stop := d.tell(crashing, d.stream, eventMetrics())
	if n := <-crashing.asked; n != 50 {
		t.Errorf("published %d events before the crash, want a page of 50", n)
	}
	stop()
	if n := d.count("SELECT COUNT(*) FROM deliveries"); n != 0 {
		t.Errorf("%d deliveries without the events being settled", n)
	}

	d.tell(d.ledger, d.stream, eventMetrics())
	d.awaitTold()
	d.requireStories(want)
	if n := d.count("SELECT COUNT(*) FROM deliveries WHERE status = 'waiting'"); n != 10 {
		t.Errorf("%d deliveries, want one for each of the 10 paid orders", n)
	}
}

func TestAStreamThatIsAwayOrRefusesLosesNoEvent(t *testing.T) {
	d := openDesk(t, 10_000)
	metrics := eventMetrics()
	d.tell(d.ledger, d.stream, metrics)
	d.nats.Kill()
	want := d.live("buyer", 60)
	harness.Eventually(t, wait, "the failure is counted", func() (bool, string) {
		n := testutil.ToFloat64(metrics.Failures)
		return n > 0, fmt.Sprint(n)
	})
	d.nats.Start()
	d.awaitTold()
	d.requireStories(want)
}

func TestAnOrderThatIsRolledBackIsToldToBeRejectedLast(t *testing.T) {
	d := openDesk(t, 10_000)
	_, err := d.ledger.EditSale(t.Context(), d.sale.ID, ledger.Cause{Actor: "test"}, func(s *sale.Sale) error {
		s.Fulfilment = &sale.Fulfilment{
			URL: "http://shop.example/hook", Trigger: sale.FulfilPaid, GiveUpAfter: sale.Duration(time.Hour), OnFailure: sale.FailureRollback,
		}
		return nil
	})
	must(t, err)
	d.tell(d.ledger, d.stream, eventMetrics())
	want := make(map[string]string)
	for _, g := range d.sell("buyer", 20) {
		get[sale.Order](t)(d.ledger.Pay(t.Context(), g.OrderID))
		want[g.OrderID] = "created paid rejected"
	}
	d.awaitTold()
	claims := get[ledger.Claims](t)(d.ledger.ClaimDeliveries(t.Context(), "shop.example", 100, time.Hour))
	for _, one := range claims.Deliveries {
		status, _, err := d.ledger.GiveUp(t.Context(), one, "status 500")
		must(t, err)
		if status != ledger.DeliveryFailed {
			t.Errorf("order %s: %s", one.OrderID, status)
		}
	}
	d.awaitTold()
	d.requireStories(want)
}

// picky is a stream that does not take an event the first time it is offered.
type picky struct {
	*stream.Stream
	mu      sync.Mutex
	offered map[string]bool
}

func (p *picky) PublishEvents(ctx context.Context, events []stream.Event) ([]bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stored := make([]bool, len(events))
	var taken []stream.Event
	var at []int
	for i, e := range events {
		if p.offered[e.ID] {
			taken, at = append(taken, e), append(at, i)
		}
		p.offered[e.ID] = true
	}
	done, err := p.Stream.PublishEvents(ctx, taken)
	for i, ok := range done {
		stored[at[i]] = ok
	}
	if err == nil && slices.Contains(stored, false) {
		err = errors.New("not now")
	}
	return stored, err
}

func TestAnEventIsNotOvertakenByALaterOneOfItsOrder(t *testing.T) {
	d := openDesk(t, 10_000)
	want := d.live("buyer", 60)
	d.tell(d.ledger, &picky{Stream: d.stream, offered: make(map[string]bool)}, eventMetrics())
	d.awaitTold()
	d.requireStories(want)
}

// frozen is a ledger whose process stands still after it has read its first page.
type frozen struct {
	order.EventLedger
	once   sync.Once
	read   chan struct{}
	resume chan struct{}
}

func (f *frozen) Events(ctx context.Context, limit int) ([]ledger.Event, error) {
	page, err := f.EventLedger.Events(ctx, limit)
	f.once.Do(func() {
		close(f.read)
		<-f.resume
	})
	return page, err
}

func TestAPublisherThatWakesUpLateTellsNothingNew(t *testing.T) {
	d := openDesk(t, 10_000)
	want := d.live("buyer", 12)
	late := &frozen{EventLedger: d.ledger, read: make(chan struct{}), resume: make(chan struct{})}
	own := d.openStream()
	d.tell(late, own, eventMetrics())
	<-late.read
	// As if its process stood still: nobody renews its lease any more.
	must(t, get[jetstream.KeyValue](t)(d.js().KeyValue(t.Context(), stream.LeasesBucket)).Purge(t.Context(), "order-events"))
	d.tell(d.ledger, d.stream, eventMetrics())
	d.awaitTold()
	maps.Copy(want, d.live("later", 12))
	d.awaitTold()
	close(late.resume)
	maps.Copy(want, d.live("last", 12))
	d.awaitTold()
	d.requireStories(want)
}

func TestPublisherRefusesSettingsOutOfRange(t *testing.T) {
	for name, cfg := range map[string]order.PublisherConfig{
		"Page":     {Page: ledger.PageMax + 1},
		"Interval": {Interval: -1},
		"LeaseTTL": {LeaseTTL: 1500 * time.Millisecond},
		"RetryMax": {RetryMax: time.Millisecond},
	} {
		_, err := order.NewPublisher(cfg, nil, nil, eventMetrics(), nil)
		if err == nil || !contains(err.Error(), name) {
			t.Errorf("%s out of range: the error is %v", name, err)
		}
	}
}
