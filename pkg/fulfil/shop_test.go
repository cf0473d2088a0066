package fulfil_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

func TestMain(m *testing.M) { harness.Main(m) }

// wait is how long a test waits for something that is bound to happen.
const wait = 60 * time.Second

// key signs the webhooks of these tests.
var key = []byte("a key of these tests, 32 bytes..")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// shop is a ledger with sales whose orders are fulfilled by receivers.
type shop struct {
	t       *testing.T
	dsn     string
	ledger  *ledger.Ledger
	metrics *telemetry.WebhookMetrics
	log     *lines
	back    givebacks
	seq     uint64
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, dsn: harness.SharedMariaDB(t).NewDatabase(t), log: &lines{}}
	s.metrics = telemetry.NewWebhookMetrics(prometheus.NewRegistry(), fulfil.Results, fulfil.Ends)
	s.ledger = s.openLedger()
	must(t, s.ledger.Migrate(t.Context()))
	return s
}

func (s *shop) openLedger() *ledger.Ledger {
	s.t.Helper()
	l := get[*ledger.Ledger](s.t)(ledger.Open(s.t.Context(), ledger.Config{DSN: s.dsn}))
	s.t.Cleanup(func() { must(s.t, l.Close()) })
	return l
}

// sale makes a sale whose paid orders are sent to a URL.
func (s *shop) sale(id, url string, change ...func(*sale.Fulfilment)) {
	s.t.Helper()
	rules := &sale.Fulfilment{URL: url, Trigger: sale.FulfilPaid, GiveUpAfter: sale.Duration(time.Hour), OnFailure: sale.FailurePark}
	for _, f := range change {
		f(rules)
	}
	now := time.Now()
	made := sale.Sale{
		ID: id, Name: "test", Status: sale.StatusApproved, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		PaymentWindow: sale.Duration(time.Hour), Timezone: "UTC", Items: []sale.Item{{SKU: "A", Stock: 1000, PriceCents: 100}},
	}
	made.Fulfilment = rules
	get[sale.Sale](s.t)(s.ledger.CreateSale(s.t.Context(), made))
}

// rollback has failed orders of a sale rolled back after a second, the least that can be asked for.
func rollback(f *sale.Fulfilment) {
	f.OnFailure, f.GiveUpAfter = sale.FailureRollback, sale.Duration(time.Second)
}

// onCreation has orders sent before they are paid.
func onCreation(f *sale.Fulfilment) { f.Trigger = sale.FulfilCreated }

// order writes n orders of two units each, pays them, and settles their events. It returns their ids.
func (s *shop) orders(saleID string, n int) []string {
	s.t.Helper()
	ids := s.unpaid(saleID, n)
	for _, id := range ids {
		get[sale.Order](s.t)(s.ledger.Pay(s.t.Context(), id))
	}
	s.settle()
	return ids
}

func (s *shop) unpaid(saleID string, n int) []string {
	s.t.Helper()
	s.seq++
	batch := sale.Batch{BatchHead: sale.BatchHead{Generation: 1, Process: "shop"}}
	at := time.Now().UTC().Truncate(time.Millisecond)
	ids := make([]string, n)
	for i := range n {
		user := fmt.Sprintf("user-%d-%d", s.seq, i)
		ids[i] = sale.OrderID(saleID, user, "k")
		batch.Grants = append(batch.Grants, sale.Grant{
			Kind: sale.GrantGrab, OrderID: ids[i], User: user, Key: "k", IP: "192.0.2.1", At: at, ExpiresAt: at.Add(time.Hour),
			Lines: []sale.Line{{SKU: "A", Quantity: 2, PriceCents: 100}},
		})
	}
	get[ledger.Result](s.t)(s.ledger.Record(s.t.Context(), ledger.Batch{
		Messages: []ledger.Message{{Seq: s.seq, SaleID: saleID, Batch: batch}},
	}))
	s.settle()
	return ids
}

// settle does as if all events were on the stream.
func (s *shop) settle() {
	s.t.Helper()
	for {
		page := get[[]ledger.Event](s.t)(s.ledger.Events(s.t.Context(), ledger.PageMax))
		if len(page) == 0 {
			return
		}
		get[int](s.t)(s.ledger.SettleEvents(s.t.Context(), page))
	}
}

// told lists the kinds of an order's events that are not settled.
func (s *shop) told(orderID string) string {
	s.t.Helper()
	var kinds []string
	for _, e := range get[[]ledger.Event](s.t)(s.ledger.Events(s.t.Context(), ledger.PageMax)) {
		if e.OrderID == orderID {
			kinds = append(kinds, string(e.Kind))
		}
	}
	return strings.Join(kinds, " ")
}

// keen settings don't make a test wait.
var keen = fulfil.Config{
	Keys: [][]byte{key}, Timeout: 5 * time.Second, SlowAfter: 200 * time.Millisecond, Poll: 5 * time.Millisecond,
	RetryBase: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond, RecordTimeout: 5 * time.Second, DrainLimit: 100 * time.Millisecond,
}

// send runs a sender until stop is called or the test ends.
func (s *shop) send(cfg fulfil.Config) (stop func()) {
	s.t.Helper()
	return s.sendWith(cfg, s.ledger)
}

func (s *shop) sendWith(cfg fulfil.Config, l fulfil.Ledger) (stop func()) {
	s.t.Helper()
	sender := get[*fulfil.Sender](s.t)(fulfil.New(cfg, fulfil.Parts{
		Ledger: l, Givebacks: &s.back, Metrics: s.metrics, Log: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := sender.Run(ctx); err != nil {
			s.t.Errorf("sender: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// await waits until the deliveries of orders are in a state.
func (s *shop) await(want ledger.DeliveryStatus, orderIDs ...string) {
	s.t.Helper()
	s.awaitWithin(wait, want, orderIDs...)
}

func (s *shop) awaitWithin(limit time.Duration, want ledger.DeliveryStatus, orderIDs ...string) {
	s.t.Helper()
	harness.Eventually(s.t, limit, "deliveries are "+string(want), func() (bool, string) {
		for _, id := range orderIDs {
			d, err := s.ledger.GetDelivery(s.t.Context(), id)
			if err != nil || d.Status != want {
				return false, fmt.Sprintf("%s: %s after %d attempts, %q, %v", id, d.Status, d.Attempts, d.LastError, err)
			}
		}
		return true, ""
	})
}

// requireOrder holds what an order is now.
func (s *shop) requireOrder(id string, status sale.OrderStatus, reason string) {
	s.t.Helper()
	o := get[sale.Order](s.t)(s.ledger.GetOrder(s.t.Context(), id))
	if o.Status != status || o.Reason != reason {
		s.t.Errorf("order %s is %s %q, want %s %q", id, o.Status, o.Reason, status, reason)
	}
}

// requireSound holds every guarantee that the ledger can check.
func (s *shop) requireSound(saleID string) {
	s.t.Helper()
	for _, c := range get[[]ledger.Check](s.t)(s.ledger.Verify(s.t.Context(), saleID)) {
		if !c.OK {
			s.t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
}

// givebacks remembers what is to come back in Redis; reconcile's tests bring it there.
type givebacks struct {
	mu  sync.Mutex
	all []sale.Giveback
}

func (g *givebacks) Return(_ context.Context, back sale.Giveback) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, back)
	return nil
}

func (g *givebacks) ids() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := make([]string, len(g.all))
	for i := range g.all {
		ids[i] = g.all[i].ID
	}
	return ids
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// visit is a webhook as its receiver saw it.
type visit struct {
	id     string
	at     time.Time
	event  sale.Event
	header http.Header
}

// receiver is the shop's system.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	visits []visit
}

// receive runs a receiver that checks every signature and then answers as it is told.
func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	check := get[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhookRaw(key))
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = check.Verify(body, request.Header)
		}
		v := visit{id: request.Header.Get("Webhook-Id"), at: time.Now(), header: request.Header}
		if err == nil {
			err = json.Unmarshal(body, &v.event)
		}
		if err != nil {
			t.Errorf("webhook: %v", err)
		}
		r.mu.Lock()
		r.visits = append(r.visits, v)
		r.mu.Unlock()
		answer(w, request)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) seen() []visit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]visit(nil), r.visits...)
}

// perOrder counts the visits about each order.
func (r *receiver) perOrder() map[string]int {
	count := make(map[string]int)
	for _, v := range r.seen() {
		count[v.event.Data.ID]++
	}
	return count
}

// status answers with the same status each time.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// inTurn answers with one status after the other, and for ever with the last.
func inTurn(codes ...int) http.HandlerFunc {
	var mu sync.Mutex
	next := 0
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(codes[min(next, len(codes)-1)])
		next++
	}
}

// hang answers nobody until the test ends or the caller leaves.
func hang(t *testing.T) http.HandlerFunc {
	t.Helper()
	over := t.Context().Done()
	return func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-over:
		case <-request.Context().Done():
		}
	}
}
