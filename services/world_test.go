package services_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/servers"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/redis/go-redis/v9"
)

// world is the whole path of a grab inside the test's own process, on real
// servers: two grab engines, an order worker, a reconciler that is called by hand. So a
// test knows when a change has reached everybody.
type world struct {
	redis     *redis.Client
	store     *stock.Store
	stream    *stream.Stream
	ledger    *ledger.Ledger
	grabs     []*grab.Service
	rec       *reconcile.Reconciler
	givebacks *reconcile.Givebacks
}

// openWorld starts a world whose grab processes repeat "sold out" from memory for
// that long; 0 asks Redis each time.
func openWorld(t testing.TB, soldOutTTL time.Duration) *world {
	t.Helper()
	w := &world{redis: harness.Redis(t).Client()}
	w.store = stock.New(w.redis)
	log := slog.New(slog.DiscardHandler)
	var err error
	if w.stream, err = stream.Open(stream.Config{URL: harness.NATS(t).URL(), Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.stream.Close)
	must(t, w.stream.AwaitTopology(t.Context()))
	if w.ledger, err = ledger.Open(t.Context(), ledger.Config{DSN: harness.SharedMariaDB(t).NewDatabase(t)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.ledger.Close() })
	must(t, w.ledger.Migrate(t.Context()))
	w.givebacks = reconcile.NewGivebacks(w.store, w.ledger, w.stream)
	if w.rec, err = reconcile.New(reconcile.Config{LeaseTTL: time.Second}, w.store, w.stream, w.ledger, nil, log); err != nil {
		t.Fatal(err)
	}
	w.run(t, log, soldOutTTL)
	return w
}

// run starts what sells and writes, until the test ends.
func (w *world) run(t testing.TB, log *slog.Logger, soldOutTTL time.Duration) {
	t.Helper()
	identity, err := web.NewIdentity(t.Context(), web.IdentityOptions{TrustUserHeader: true})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for range 2 {
		service, err := grab.NewService(grab.ServiceConfig{
			Tuning: config.GrabTuning{
				BatchMax: 192, QueueMax: 1000, InFlightMax: 1000, UnackedBatches: 3, LeaseTTL: 5 * time.Second, SoldOutTTL: soldOutTTL,
			},
			PublishDeadline: 10 * time.Second, Stock: w.store, Stream: w.stream, Identity: identity,
			Metrics: telemetry.NewGrabMetrics(telemetry.NewRegistry(), sale.OutcomeNames()), Log: log,
		})
		must(t, err)
		w.grabs = append(w.grabs, service)
		running.Go(func() { _ = service.Run(ctx) })
		harness.Eventually(t, 10*time.Second, "a grab service is ready", func() (bool, string) { return service.Ready(ctx) == nil, "" })
	}
	worker, err := order.NewWorker(order.WorkerConfig{}, w.ledger, w.stream, func(string) {},
		telemetry.NewOrderMetrics(telemetry.NewRegistry(), order.Tables, order.RetryReasons), log)
	must(t, err)
	running.Go(func() { _ = worker.Run(ctx) })
}

// open stores, publishes and loads a sale.
func (w *world) open(t fataler, s sale.Sale) {
	t.Helper()
	now := time.Now().Truncate(time.Second)
	s.Name, s.Status, s.Timezone = "a sale", sale.StatusApproved, "Europe/Berlin"
	s.StartsAt, s.EndsAt, s.PaymentWindow = now.Add(-time.Hour), now.AddDate(1, 0, 0), sale.Duration(30*time.Minute)
	stored, err := w.ledger.CreateSale(context.Background(), s)
	must(t, err)
	w.publish(t, &stored)
	report, err := w.rec.Reconcile(context.Background(), s.ID, reconcile.ReasonApprove)
	must(t, err)
	if report.Result != reconcile.ResultRestored {
		t.Fatalf("the sale was not loaded: %+v", report)
	}
}

// publish waits until both engines sell by this revision.
func (w *world) publish(t fataler, s *sale.Sale) {
	t.Helper()
	must(t, w.stream.PutSale(context.Background(), s))
	eventually(t, 5*time.Second, "the sale is known everywhere", func() (bool, string) {
		for _, g := range w.grabs {
			if known, ok := g.Engine().Sale(s.ID); !ok || known.Revision < s.Revision {
				return false, fmt.Sprint(known)
			}
		}
		return true, ""
	})
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// eventually is harness.Eventually for a test that rapid drives, too.
func eventually(t fataler, within time.Duration, what string, cond func() (bool, string)) {
	t.Helper()
	if ok, detail := servers.Poll(within, cond); !ok {
		t.Fatalf("%s: not within %v: %s", what, within, detail)
	}
}
