package stream_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func definition(id string, revision int64) *sale.Sale {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	return &sale.Sale{
		ID: id, Name: fmt.Sprintf("%s revision %d", id, revision), Status: sale.StatusApproved, Revision: revision,
		StartsAt: start, EndsAt: start.Add(time.Hour), PaymentWindow: sale.Duration(time.Minute), Timezone: "UTC",
		Items: []sale.Item{{SKU: "A", Stock: 10, PriceCents: 100}},
	}
}

func TestASaleDefinitionComesBackAsItWas(t *testing.T) {
	s := open(t, harness.NATS(t))
	_, err := s.GetSale(t.Context(), "s1")
	wantError(t, err, stream.ErrNoSale)
	want := definition("s1", 1)
	must(t, s.PutSale(t.Context(), want))
	if got := get[*sale.Sale](t)(s.GetSale(t.Context(), "s1")); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	must(t, s.DeleteSale(t.Context(), "s1"))
	must(t, s.DeleteSale(t.Context(), "s1"))
	_, err = s.GetSale(t.Context(), "s1")
	wantError(t, err, stream.ErrNoSale)
	must(t, s.PutSale(t.Context(), want)) // a deleted one may come back
	get[*sale.Sale](t)(s.GetSale(t.Context(), "s1"))
}

func TestTheCatalogueDoesNotHoldTheAddressOfTheShop(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	def := definition("s1", 1)
	def.Fulfilment = &sale.Fulfilment{URL: "https://shop.example/hook?token=secret", Trigger: sale.FulfilPaid}
	must(t, s.PutSale(t.Context(), def))
	if got := get[*sale.Sale](t)(s.GetSale(t.Context(), "s1")); got.Fulfilment != nil || def.Fulfilment == nil {
		t.Errorf("the catalogue holds %+v", got.Fulfilment)
	}
}

func TestALowerRevisionNeverWins(t *testing.T) {
	server := harness.NATS(t)
	random := rand.New(rand.NewPCG(harness.Seed(t), 1))
	const highest = 40
	var wg sync.WaitGroup
	for range 4 {
		s := open(t, server)
		order := random.Perm(highest)
		wg.Go(func() {
			for _, i := range order {
				if err := s.PutSale(t.Context(), definition("s1", int64(i+1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := open(t, server)
	if got := get[*sale.Sale](t)(s.GetSale(t.Context(), "s1")); got.Revision != highest {
		t.Fatalf("revision %d won, want %d", got.Revision, highest)
	}
}

// shelf is what a watch has told of.
type shelf struct {
	mu    sync.Mutex
	sales map[string]int64
}

func (s *shelf) update(def *sale.Sale, deletedID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sales == nil {
		s.sales = map[string]int64{}
	}
	if def == nil {
		delete(s.sales, deletedID)
		return
	}
	s.sales[def.ID] = def.Revision
}

func (s *shelf) shows(want map[string]int64) func() (bool, string) {
	return func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return maps.Equal(s.sales, want), fmt.Sprintf("it shows %v, want %v", s.sales, want)
	}
}

func ready(t *testing.T, w *stream.SaleWatch) {
	t.Helper()
	select {
	case <-w.Ready():
	case <-time.After(wait):
		t.Fatal("the watch is not ready")
	}
}

func TestAWatchIsReadyOnceItHasToldOfEverySale(t *testing.T) {
	s := open(t, harness.NATS(t))
	want := map[string]int64{}
	for i := range 500 { // more than nats.go buffers
		id := fmt.Sprintf("s%d", i)
		must(t, s.PutSale(t.Context(), definition(id, 1)))
		want[id] = 1
	}
	must(t, s.DeleteSale(t.Context(), "s7"))
	delete(want, "s7")
	var b shelf
	w := s.WatchSales(b.update)
	stop := run(t, w.Run)
	ready(t, w)
	if ok, detail := b.shows(want)(); !ok {
		t.Fatal(detail)
	}
	stop()
}

func TestAWatchOfNoSalesIsReady(t *testing.T) {
	s := open(t, harness.NATS(t))
	var b shelf
	w := s.WatchSales(b.update)
	run(t, w.Run)
	ready(t, w)
}

func TestAWatchThatStartsBeforeTheServerGetsReady(t *testing.T) {
	server := harness.NATS(t)
	must(t, open(t, server).PutSale(t.Context(), definition("s1", 1)))
	server.Kill()
	s := openOnly(t, server.URL())
	var b shelf
	w := s.WatchSales(b.update)
	run(t, w.Run)
	select {
	case <-w.Ready():
		t.Fatal("ready without a server")
	default:
	}
	server.Start()
	ready(t, w)
	harness.Eventually(t, wait, "the sale is told", b.shows(map[string]int64{"s1": 1}))
}

func TestAWatchTellsOfChangesSoonAfterARestart(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	var b shelf
	w := s.WatchSales(b.update)
	run(t, w.Run)
	ready(t, w)
	for revision := int64(1); revision <= 3; revision++ {
		must(t, s.PutSale(t.Context(), definition("s1", revision)))
		must(t, s.PutSale(t.Context(), definition("s2", revision)))
		want := map[string]int64{"s1": revision, "s2": revision}
		harness.Eventually(t, 3*time.Second, "the changes are told", b.shows(want))
		must(t, s.DeleteSale(t.Context(), "s2"))
		delete(want, "s2")
		harness.Eventually(t, 3*time.Second, "the deletion is told", b.shows(want))
		server.Kill()
		server.Start()
		harness.Eventually(t, wait, "the client is back", func() (bool, string) {
			err := s.Connected(t.Context())
			return err == nil, errText(err)
		})
	}
}

func TestAWatchNoticesWhatVanishedWhileItWasAway(t *testing.T) {
	server := harness.NATS(t)
	between := newProxy(t, server.URL())
	near, far := open(t, server), openOnly(t, between.url())
	must(t, near.PutSale(t.Context(), definition("s1", 1)))
	must(t, near.PutSale(t.Context(), definition("s2", 1)))
	var b shelf
	w := far.WatchSales(b.update)
	run(t, w.Run)
	ready(t, w)
	// A bucket made anew has no delete markers of the old one's sales.
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteKeyValue(t.Context(), stream.SalesBucket))
	must(t, near.EnsureTopology(t.Context()))
	must(t, near.PutSale(t.Context(), definition("s2", 2)))
	between.cut()
	harness.Eventually(t, wait, "only the new sale is left", b.shows(map[string]int64{"s2": 2}))
}

func TestAnUnreadableDefinitionIsNoSale(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	var b shelf
	w := s.WatchSales(b.update)
	run(t, w.Run)
	ready(t, w)
	must(t, s.PutSale(t.Context(), definition("s1", 5)))
	harness.Eventually(t, wait, "the sale is told", b.shows(map[string]int64{"s1": 5}))
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	bucket := get[jetstream.KeyValue](t)(js.KeyValue(t.Context(), stream.SalesBucket))
	get[uint64](t)(bucket.Put(t.Context(), "s1", []byte(`{"id":"s2"}`)))
	harness.Eventually(t, wait, "the sale is gone", b.shows(map[string]int64{}))
	if _, err := s.GetSale(t.Context(), "s1"); err == nil {
		t.Fatal("it was read")
	}
	must(t, s.PutSale(t.Context(), definition("s1", 4)))
	harness.Eventually(t, wait, "a readable one replaces it", b.shows(map[string]int64{"s1": 4}))
}
