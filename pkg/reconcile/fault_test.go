package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

// stepLimit bounds what a test waits for.
const stepLimit = 10 * time.Second

func execute(t testing.TB, dsn, statement string) error {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(t.Context(), statement)
	return err
}

func adjustment(saleID string, units int64) ledger.Adjustment {
	return ledger.Adjustment{SaleID: saleID, SKU: "A", Delta: units, Ref: "up", Actor: "admin", Reason: "found some"}
}

// The environment of a victim: a process that reconciles one sale and is killed
// when the run comes to a step.
const (
	victimStep   = "RECONCILE_TEST_KILL_AT"
	victimServer = "RECONCILE_TEST_SERVERS" // redis address, NATS URL, DSN, sale; separated by spaces
)

func runVictim() {
	f := strings.Fields(os.Getenv(victimServer))
	str, err := stream.Open(stream.Config{URL: f[1]})
	exitOn(err)
	exitOn(str.AwaitTopology(context.Background()))
	l, err := ledger.Open(context.Background(), ledger.Config{DSN: f[2]})
	exitOn(err)
	store := stock.New(redis.NewClient(&redis.Options{Addr: f[0], MaxRetries: -1}))
	r, err := New(impatient, store, unleased{str, os.Getenv(victimStep)}, l, nil, nil)
	exitOn(err)
	r.step = func(_ string, step Step) {
		if string(step) == os.Getenv(victimStep) {
			exitOn(syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {}
		}
	}
	_, err = r.Reconcile(context.Background(), f[3], ReasonForced)
	exitOn(err)
	fmt.Println("survived")
	os.Exit(0)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestARunKilledAtAnyStepIsCompletedByTheNext(t *testing.T) {
	s := openShop(t, 100)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	program, err := os.Executable()
	s.must(err)
	next := 0
	for _, step := range Steps {
		t.Run(string(step), func(t *testing.T) {
			s.t = t
			s.grabs(next, next+2) // written
			s.write(0)
			s.grabs(next+2, next+3) // in the stream only
			_, err := s.decide(user(next + 3))
			s.must(err) // on the outbox only
			s.cancel(user(next))
			next += 4
			victim := harness.Process(t, program, nil, []string{
				victimStep + "=" + string(step),
				victimServer + "=" + strings.Join([]string{s.redis.Addr(), s.nats.URL(), s.dsn, s.id}, " "),
			})
			if code := victim.Wait(); code != -1 {
				t.Fatalf("the victim ended with %d by itself: %s", code, victim.Output())
			}
			// Its lease dies a second after the victim: once, that is waited for.
			successor := s.reconciler()
			if step == StepFence {
				successor.stream = unleased{s.stream, string(step)}
			}
			if _, err := successor.Reconcile(t.Context(), s.id, ReasonAudit); err != nil {
				t.Fatal(err)
			}
			s.must(s.rec.RelayAll(t.Context()))
			s.requireSound()
			won := int64(next - next/4) // each fourth was cancelled
			s.requireState(100-won, int64(next), int64(next))
		})
	}
}

// Grabs go on while two reconcilers rebuild the sale again and again. Whatever
// interleaving comes about, all guarantees hold, and exactly the stock is sold.
func TestRacingReconcilersAreHarmless(t *testing.T) {
	const units, rebuilds = 500, 20
	s := openShop(t, units)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	ctx, cancel := context.WithCancel(t.Context())
	var racers sync.WaitGroup
	defer racers.Wait()
	defer cancel()
	var restored atomic.Int64
	for range 2 {
		r := s.reconciler()
		r.stream = unleased{s.stream, harness.Name(t)}
		racers.Go(func() {
			for ctx.Err() == nil {
				if report, err := r.Reconcile(ctx, s.id, ReasonForced); err == nil && report.Result == ResultRestored {
					restored.Add(1)
				}
			}
		})
	}
	won := make(map[string]bool)
	next := 0
	harness.Eventually(t, time.Minute, "enough rebuilds during the sale", func() (bool, string) {
		for range 50 {
			next++
			d, err := s.decide(user(next))
			if err == nil && codesOf(d) == "W" && s.publish(d) == nil {
				won[sale.OrderID(s.id, user(next), key(user(next)))] = true
			}
		}
		return restored.Load() >= rebuilds, fmt.Sprintf("%d rebuilds, %d won", restored.Load(), len(won))
	})
	cancel()
	racers.Wait()
	s.reconcile(ResultRestored, ReasonForced)
	for id := range won {
		if _, ok, err := s.store.Find(t.Context(), s.id, id); err != nil || !ok {
			t.Fatalf("grant %s was won and is not in Redis: %v", id, err)
		}
	}
	if len(won) == 0 {
		t.Error("nobody won while the sale was rebuilt")
	}
	s.sellOut(1_000_000, int(s.state().Remaining["A"]))
	v := s.requireSound()
	if c := check(t, v, "orders_have_grants"); c.Numbers["orders"] != units {
		t.Errorf("%d orders, want exactly %d", c.Numbers["orders"], units)
	}
}

func check(t testing.TB, v Verification, name string) Check {
	t.Helper()
	for _, c := range v.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s in %+v", name, v.Checks)
	return Check{}
}

// unleased is a world where nobody else holds a lease.
type unleased struct {
	*stream.Stream
	owner string
}

func (u unleased) Acquire(ctx context.Context, name string, ttl time.Duration) (*stream.Lease, error) {
	return u.Stream.Acquire(ctx, name+u.owner, ttl)
}

func TestAHeldLeaseIsWaitedForAndItsResultTaken(t *testing.T) {
	s := openShop(t, 5)
	lease, err := s.stream.Acquire(t.Context(), "reconcile-"+s.id, time.Minute)
	s.must(err)
	s.rec.cfg.WaitTimeout = 100 * time.Millisecond
	s.reconcile(ResultHeld, stock.ReasonNoState)

	s.rec.cfg.WaitTimeout = stepLimit
	other := s.reconciler()
	other.stream = unleased{s.stream, "-other"}
	waiting := make(chan struct{})
	var once sync.Once
	s.rec.step = func(_ string, step Step) { once.Do(func() { close(waiting) }) }
	done := make(chan Report, 1)
	go func() {
		report, _ := s.rec.Reconcile(context.Background(), s.id, stock.ReasonNoState)
		done <- report
	}()
	<-waiting
	if _, err := other.Reconcile(t.Context(), s.id, stock.ReasonNoState); err != nil {
		t.Fatal(err)
	}
	if report := <-done; report.Result != ResultHealthy {
		t.Errorf("the waiting run ended %s, want healthy by the other's work", report.Result)
	}
	s.must(lease.Release(t.Context()))
	s.sellOut(0, 5)
}
