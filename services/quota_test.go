package services_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// quotas is a world with quotas in it: grab processes that deduct, and a reconciler
// that answers whoever asks for a load, all by one clock.
type quotas struct {
	*world
	clock *clock
	grabs []*grab.Engine
}

// clock is a time that the test sets; until then it is the real one.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Now()
	}
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func openQuotas(t testing.TB, processes int) *quotas {
	t.Helper()
	return openQuotasWith(t, processes, reconcile.Config{
		LeaseTTL: time.Second, AuditInterval: 100 * time.Millisecond, RelayInterval: 50 * time.Millisecond,
	})
}

func openQuotasWith(t testing.TB, processes int, cfg reconcile.Config) *quotas {
	t.Helper()
	q := &quotas{world: openWorld(t, 0), clock: &clock{}}
	log := slog.New(slog.DiscardHandler)
	cfg.Now = q.clock.now
	rec, err := reconcile.New(cfg, q.store, q.stream, q.ledger, nil, log)
	must(t, err)
	q.rec = rec
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { _ = rec.Run(ctx) })
	for range processes {
		engine, err := grab.New(grab.Config{
			Process: grab.NewProcess(), PublishDeadline: 20 * time.Second, LoadWait: 20 * time.Second, Now: q.clock.now,
		}, q.store, q.stream, nil, log)
		must(t, err)
		running.Go(func() { _ = engine.Run(ctx) })
		harness.Eventually(t, 10*time.Second, "the engine runs", func() (bool, string) { return engine.Ready(), "" })
		q.grabs = append(q.grabs, engine)
	}
	return q
}

// make makes a quota that all processes know.
func (q *quotas) make(t *testing.T, limit int64, window sale.LimitWindow, zone string) (key string) {
	t.Helper()
	quota := sale.Quota{Key: "k", Limit: limit, Window: window, Timezone: zone}
	s, err := q.ledger.CreateSale(t.Context(), quota.Sale())
	must(t, err)
	q.tell(&s)
	return quota.Key
}

func (q *quotas) tell(s *sale.Sale) {
	for _, engine := range q.grabs {
		engine.Put(s)
	}
}

// change changes the limit.
func (q *quotas) change(t *testing.T, key string, limit int64) {
	t.Helper()
	s, err := q.ledger.EditSale(t.Context(), sale.QuotaSaleID(key), ledger.Cause{}, func(s *sale.Sale) error {
		s.SetQuota(limit)
		return nil
	})
	must(t, err)
	q.tell(&s)
}

// deduct takes units in one of the processes.
func (q *quotas) deduct(t *testing.T, process int, key, idempotency string, units int64) grab.Answer {
	t.Helper()
	a, err := q.grabs[process%len(q.grabs)].Deduct(t.Context(), grab.Deduction{Quota: key, Key: idempotency, Quantity: units})
	if err != nil {
		t.Error(err)
	}
	return a
}

// expect deducts in the first process, and requires "allowed N" or "refused N".
func (q *quotas) expect(t *testing.T, key, idempotency string, units int64, want string) grab.Answer {
	t.Helper()
	a := q.deduct(t, 0, key, idempotency, units)
	got := fmt.Sprint(map[sale.Outcome]string{sale.Won: "allowed", sale.LimitExceeded: "refused"}[a.Outcome], " ", a.Remaining)
	if got != want {
		t.Fatalf("%d units for %q: %s (%s %s), want %s", units, idempotency, got, a.Outcome, a.Reason, want)
	}
	return a
}

// written waits until the ledger has counted so many units in the window of now.
func (q *quotas) written(t *testing.T, key string, want int64) {
	t.Helper()
	s, err := q.ledger.GetSale(t.Context(), sale.QuotaSaleID(key))
	must(t, err)
	l := s.Limits[0]
	harness.Eventually(t, 30*time.Second, "the ledger has counted", func() (bool, string) {
		used, err := q.ledger.Used(t.Context(), s.ID, l.Name(), l.Window.Period(q.clock.now(), s.Location()), "")
		return err == nil && used == want, fmt.Sprint(used, err)
	})
}

// giveBack returns units of a deduction.
func (q *quotas) giveBack(t *testing.T, deduction, id string, units int64) error {
	t.Helper()
	_, back, err := q.ledger.Return(t.Context(), ledger.Return{
		OrderID: deduction, ID: id, Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: units}}, Actor: "backend",
	})
	if err != nil {
		return err
	}
	return q.givebacks.Return(t.Context(), back)
}

// generation counts how often the quota was loaded.
func (q *quotas) generation(t *testing.T, key string) int64 {
	t.Helper()
	fence, err := q.stream.LastFence(t.Context(), sale.QuotaSaleID(key))
	must(t, err)
	return fence.Generation
}

// passMidnight does what Redis does when its own clock passes the test's: keys whose
// time has come are gone.
func (q *quotas) passMidnight(t *testing.T, at time.Time) {
	t.Helper()
	q.clock.set(at)
	for _, name := range q.redis.Keys(t.Context(), "*").Val() {
		if expires := q.redis.PExpireTime(t.Context(), name).Val(); expires > 0 && expires.Milliseconds() <= at.UnixMilli() {
			must(t, q.redis.Del(t.Context(), name).Err())
		}
	}
}

// sound waits until every guarantee is verified at rest.
func (q *quotas) sound(t *testing.T, key string) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "every guarantee holds at rest", func() (bool, string) {
		v, err := q.rec.Verify(t.Context(), sale.QuotaSaleID(key))
		if err != nil {
			return false, err.Error()
		}
		var failed []string
		for _, c := range v.Checks {
			if !c.OK {
				failed = append(failed, c.Name+": "+c.Detail)
			}
		}
		return v.OK && v.AtRest && v.Loaded, fmt.Sprint(v.Moving, v.Why, failed)
	})
}

// The first deductions of a window come to a hundred processes at once. One load
// serves all, and exactly the limit is allowed, each unit once.
func TestAHundredProcessesShareOneLoadOfAFreshWindow(t *testing.T) {
	const processes, each, limit = 100, 15, 1000
	q := openQuotas(t, processes)
	key := q.make(t, limit, sale.WindowDay, "UTC")
	answers := make([]grab.Answer, processes*each)
	var deducting sync.WaitGroup
	begin := make(chan struct{})
	for i := range answers {
		deducting.Go(func() {
			<-begin
			answers[i] = q.deduct(t, i, key, fmt.Sprint("d", i), 1)
		})
	}
	close(begin)
	deducting.Wait()
	var left []int64
	ids := make(map[string]bool)
	for i, a := range answers {
		switch a.Outcome {
		case sale.Won:
			left = append(left, a.Remaining)
			ids[a.OrderID] = true
		case sale.LimitExceeded:
			if a.Remaining != 0 {
				t.Errorf("deduction %d was refused with %d left", i, a.Remaining)
			}
		default:
			t.Errorf("deduction %d: %s %s", i, a.Outcome, a.Reason)
		}
	}
	slices.Sort(left)
	if len(left) != limit || len(ids) != limit || left[0] != 0 || left[limit-1] != limit-1 || len(slices.Compact(left)) != limit {
		t.Errorf("%d deductions were allowed, %d of them different; each of the %d units must be told once", len(left), len(ids), limit)
	}
	if loads := q.generation(t, key); loads != 1 {
		t.Errorf("the quota was loaded %d times, want once", loads)
	}
	q.written(t, key, limit)
	q.sound(t, key)
}

// A day of a quota is a day of its timezone, also when the clocks change on it; its
// keys leave Redis as it ends, and the next day begins at nothing. A key that was
// used before midnight is known after it.
func TestADayOfAQuotaTurnsAtMidnightOnTheDayTheClocksChange(t *testing.T) {
	from, to := nextChange(t, "Europe/Berlin")
	for name, expires := range map[string]bool{"the clock of Redis keeps up": true, "the clock of Redis is slow": false} {
		t.Run(name, func(t *testing.T) {
			q := openQuotas(t, 1)
			turn := q.clock.set
			if expires {
				turn = func(at time.Time) { q.passMidnight(t, at) }
			}
			turn(from.Add(-time.Millisecond))
			key := q.make(t, 5, sale.WindowDay, "Europe/Berlin")
			before := q.expect(t, key, "before", 5, "allowed 0")
			q.expect(t, key, "full", 1, "refused 0")
			q.written(t, key, 5)
			meta := stock.KeysOf(sale.QuotaSaleID(key)).Meta()
			if ends := time.UnixMilli(q.redis.PExpireTime(t.Context(), meta).Val().Milliseconds()); !ends.Equal(from) {
				t.Errorf("the state ends at %s, the day at %s", ends, from)
			}

			turn(from)
			q.expect(t, key, "first", 4, "allowed 1")
			if again := q.expect(t, key, "before", 5, "allowed 1"); again.OrderID != before.OrderID || !again.Replayed {
				t.Errorf("the key of the day before names %s, want %s", again.OrderID, before.OrderID)
			}
			turn(to.Add(-time.Millisecond))
			q.expect(t, key, "last", 1, "allowed 0")
			q.expect(t, key, "too late", 1, "refused 0")
			turn(to)
			q.expect(t, key, "next", 1, "allowed 4")
			q.written(t, key, 1)
			loads := q.generation(t, key)
			if expires != (loads == 3) {
				t.Errorf("loaded %d times in three days", loads)
			}
			q.sound(t, key)
		})
	}
}

// What is used stays used, whatever becomes of the limit in mid-window.
func TestAChangeOfTheLimitKeepsWhatIsUsed(t *testing.T) {
	q := openQuotas(t, 1)
	key := q.make(t, 10, sale.WindowMonth, "Asia/Tokyo")
	q.expect(t, key, "1", 7, "allowed 3")
	q.change(t, key, 5)
	q.expect(t, key, "2", 1, "refused 0")
	q.change(t, key, 8)
	q.expect(t, key, "3", 2, "refused 1")
	q.expect(t, key, "4", 1, "allowed 0")
	q.change(t, key, sale.Unlimited)
	q.expect(t, key, "5", 100, "allowed -1")
	q.change(t, key, 110)
	q.expect(t, key, "6", 1, "allowed 1")
	q.change(t, key, 0)
	q.expect(t, key, "7", 1, "refused 0")
	q.written(t, key, 109)
	if loads := q.generation(t, key); loads != 1 {
		t.Errorf("changes of the limit loaded the quota %d times, want 1", loads)
	}
	q.sound(t, key)
}

// However often and wherever a key is sent, it is one deduction.
func TestOneKeyIsOneDeduction(t *testing.T) {
	q := openQuotas(t, 5)
	key := q.make(t, 100, sale.WindowDay, "UTC")
	answers := make([]grab.Answer, 50)
	var deducting sync.WaitGroup
	for i := range answers {
		deducting.Go(func() { answers[i] = q.deduct(t, i, key, "same", 3) })
	}
	deducting.Wait()
	first := 0
	for _, a := range answers {
		if a.Outcome != sale.Won || a.OrderID != answers[0].OrderID || a.Remaining != 97 {
			t.Errorf("an answer is %+v", a)
		}
		if !a.Replayed {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d answers are the first one", first)
	}
	q.written(t, key, 3)
	q.sound(t, key)
}

// What comes back in its window can be deducted again; what comes back later is
// noted, and frees nothing of another window.
func TestReturnsFreeTheWindowTheyWereDeductedIn(t *testing.T) {
	q := openQuotas(t, 1)
	zone, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	midnight := sale.WindowDay.End(time.Now(), zone)
	q.clock.set(midnight.Add(-time.Millisecond))
	key := q.make(t, 10, sale.WindowDay, "Europe/Berlin")
	ten := q.expect(t, key, "1", 10, "allowed 0")
	q.written(t, key, 10)
	for range 3 {
		must(t, q.giveBack(t, ten.OrderID, "r1", 4))
	}
	q.expect(t, key, "2", 5, "refused 4")
	q.expect(t, key, "3", 4, "allowed 0")
	if err := q.giveBack(t, ten.OrderID, "r2", 7); err == nil {
		t.Error("more came back than was left of the deduction")
	}
	q.written(t, key, 10)

	q.passMidnight(t, midnight)
	q.expect(t, key, "4", 8, "allowed 2")
	must(t, q.giveBack(t, ten.OrderID, "r3", 6))
	q.expect(t, key, "5", 3, "refused 2")
	q.written(t, key, 8)
	q.sound(t, key)
}

// Redis loses everything while many deduct and return. Nothing allowed is forgotten,
// nothing returned is lost, and in the end exactly the limit is held.
func TestAQuotaSurvivesTheLossOfRedisWhileItIsUsed(t *testing.T) {
	const limit = 200
	q := openQuotas(t, 4)
	key := q.make(t, limit, sale.WindowYear, "America/Santiago")
	stop := make(chan struct{})
	var deducting sync.WaitGroup
	var mu sync.Mutex
	held := int64(0) // of the deductions that were allowed and are not returned
	for worker := range 16 {
		deducting.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("w%d-%d", worker, n)
				a := q.settled(t, worker, key, id, 2)
				if a.Outcome != sale.Won {
					continue
				}
				back := int64(0)
				if n%2 == 0 && q.returned(t, a.OrderID, 1) {
					back = 1
				}
				mu.Lock()
				held += 2 - back
				mu.Unlock()
			}
		})
	}
	for range 3 {
		seen := q.generation(t, key)
		harness.Eventually(t, 30*time.Second, "the quota is loaded again", func() (bool, string) { return q.generation(t, key) > seen || seen == 0, "" })
		must(t, q.redis.FlushAll(t.Context()).Err())
	}
	seen := q.generation(t, key)
	harness.Eventually(t, 30*time.Second, "the quota is loaded after the last loss", func() (bool, string) { return q.generation(t, key) > seen, "" })
	close(stop)
	deducting.Wait()
	// What is free now can be deducted, and not one unit more.
	for n := 0; ; n++ {
		a := q.settled(t, 0, key, fmt.Sprint("rest", n), 1)
		if a.Outcome == sale.LimitExceeded {
			break
		}
		held++
	}
	if held != limit {
		t.Errorf("%d units are held of a quota of %d", held, limit)
	}
	q.written(t, key, limit)
	q.sound(t, key)
}

// settled repeats a deduction until it is decided.
func (q *quotas) settled(t *testing.T, process int, key, id string, units int64) grab.Answer {
	t.Helper()
	var a grab.Answer
	harness.Eventually(t, 60*time.Second, "a deduction is decided", func() (bool, string) {
		a = q.deduct(t, process, key, id, units)
		return a.Outcome == sale.Won || a.Outcome == sale.LimitExceeded, fmt.Sprint(a.Outcome, a.Reason)
	})
	return a
}

// returned repeats a return until the ledger has decided it. The relay completes what
// could not be given back in Redis.
func (q *quotas) returned(t *testing.T, deduction string, units int64) bool {
	t.Helper()
	harness.Eventually(t, 60*time.Second, "a deduction is written and returned", func() (bool, string) {
		_, back, err := q.ledger.Return(t.Context(), ledger.Return{
			OrderID: deduction, ID: "r", Lines: []sale.Line{{SKU: sale.QuotaSKU, Quantity: units}},
		})
		if err != nil {
			return false, err.Error()
		}
		_ = q.givebacks.Return(t.Context(), back)
		return true, ""
	})
	return true
}
