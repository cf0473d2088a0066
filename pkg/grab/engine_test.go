package grab_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func itoa(n int) string { return strconv.Itoa(n) }

// crowd lets n users grab at once and counts the outcomes.
func (s *shop) crowd(t *testing.T, n int, key string) map[sale.Outcome]int {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	outcomes := map[sale.Outcome]int{}
	for i := range n {
		wg.Go(func() {
			a := s.grab(t, "user-"+itoa(i), key)
			mu.Lock()
			defer mu.Unlock()
			outcomes[a.Outcome]++
		})
	}
	wg.Wait()
	return outcomes
}

func TestACrowdBuysExactlyTheStock(t *testing.T) {
	s := openShop(t, 100, 1)
	got := s.crowd(t, 1000, "k")
	if got[sale.Won] != 100 || got[sale.SoldOut] != 900 {
		t.Fatalf("outcomes %v, want 100 won and 900 sold out", got)
	}
	s.requireSettled(t, 100)
}

func TestTheSameKeyGetsTheSameAnswer(t *testing.T) {
	s := openShop(t, 10, 1)
	first := s.grab(t, "u", "k")
	again := s.grab(t, "u", "k")
	other := s.grab(t, "u", "other")
	if first.Outcome != sale.Won || first.Replayed || again.Outcome != sale.Won || !again.Replayed {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	if again.OrderID != first.OrderID || !again.ExpiresAt.Equal(first.ExpiresAt) || again.Lines[0] != first.Lines[0] {
		t.Errorf("the replay differs: first %+v, again %+v", first, again)
	}
	if other.Outcome != sale.AlreadyGrabbed || other.OrderID != first.OrderID {
		t.Errorf("another key: %+v, want already_grabbed with %s", other, first.OrderID)
	}
	s.requireSettled(t, 1)
}

func TestARepeatAfterARestoreIsWon(t *testing.T) {
	s := openShop(t, 10, 1)
	first := s.grab(t, "u", "k")
	grant := s.inStream(t)[first.OrderID]
	fence, err := s.stream.BeginGeneration(t.Context(), s.sale.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.restoreWith(t, fence, grant, 9)
	again := s.grab(t, "u", "k")
	if again.Outcome != sale.Won || !again.Replayed || again.OrderID != first.OrderID {
		t.Fatalf("first %+v, after the restore %+v", first, again)
	}
}

func TestNoScriptIsCalledWhileTheStreamIsAway(t *testing.T) {
	s := openShop(t, 10, 1)
	s.nats.Kill()
	harness.Eventually(t, 5*time.Second, "the loss is noticed", func() (bool, string) { return !s.stream.Reachable(), "" })
	if got := s.crowd(t, 50, "k"); got[sale.Unavailable] != 50 {
		t.Fatalf("outcomes %v, want 50 unavailable", got)
	}
	if granted := s.inRedis(t); len(granted) != 0 {
		t.Fatalf("%d grants were made that could not be made durable", len(granted))
	}
	s.nats.Start()
	harness.Eventually(t, 10*time.Second, "selling goes on", func() (bool, string) {
		a := s.grab(t, "late", "k")
		return a.Outcome == sale.Won, string(a.Outcome)
	})
	s.requireSettled(t, 1)
}

func TestASilentStreamMeansPendingAndThenTheOrderIsThere(t *testing.T) {
	s := openShop(t, 10, 1)
	s.nats.Pause()
	first := s.grab(t, "u", "k")
	if first.Outcome != sale.Pending || first.OrderID == "" {
		t.Fatalf("got %+v, want pending with an order id", first)
	}
	if next := s.grab(t, "v", "k"); next.Outcome != sale.Unavailable {
		t.Errorf("while a batch is overdue: %+v, want unavailable", next)
	}
	s.nats.Resume()
	harness.Eventually(t, 15*time.Second, "the retry is won", func() (bool, string) {
		a := s.grab(t, "u", "k")
		return a.Outcome == sale.Won && a.OrderID == first.OrderID, fmt.Sprintf("%+v", a)
	})
	s.requireSettled(t, 1)
}

func TestALostAnswerOfRedisLeaksNothing(t *testing.T) {
	s := openShop(t, 1000, 1)
	s.grab(t, "warm", "k")
	for round := range 5 {
		var wg sync.WaitGroup
		var stopped atomic.Bool
		for i := range 20 {
			wg.Go(func() {
				for n := 0; !stopped.Load(); n++ {
					s.grab(t, fmt.Sprintf("u-%d-%d-%d", round, i, n), "k")
				}
			})
		}
		before := len(s.inStream(t))
		harness.Eventually(t, 5*time.Second, "the crowd is buying", func() (bool, string) { return len(s.inStream(t)) > before, "" })
		s.redis.Pause()
		refused := s.grab(t, "paused-"+itoa(round), "k")
		s.redis.Resume()
		stopped.Store(true)
		wg.Wait()
		if refused.Outcome != sale.Unavailable {
			t.Fatalf("while Redis was silent: %+v, want unavailable", refused)
		}
		harness.Eventually(t, 10*time.Second, "selling goes on", func() (bool, string) {
			a := s.grab(t, "after-"+itoa(round), "k")
			return a.Outcome == sale.Won || a.Outcome == sale.SoldOut, string(a.Outcome)
		})
	}
	s.requireSettled(t, len(s.inRedis(t)))
}

func TestAFencedBatchIsVoid(t *testing.T) {
	s := openShop(t, 10, 1)
	if _, err := s.stream.BeginGeneration(t.Context(), s.sale.ID, 1); err != nil {
		t.Fatal(err)
	}
	a := s.grab(t, "u", "k")
	if a.Outcome != sale.NotLoaded || a.Retry <= 0 {
		t.Fatalf("got %+v, want not_loaded with a time to come again", a)
	}
	if found := s.inStream(t); len(found) != 0 {
		t.Fatalf("a fenced grant is in the stream: %v", found)
	}
	s.load(t, map[string]int64{"A": 10})
	if a := s.grab(t, "u", "k"); a.Outcome != sale.Won || a.Replayed {
		t.Fatalf("after the restore: %+v, want a fresh win", a)
	}
	s.requireSettled(t, 1)
}

func TestAWipedRedisRefusesBeforeTheFirstWrongSale(t *testing.T) {
	s := openShop(t, 10, 1)
	s.crowd(t, 5, "k")
	if err := s.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.crowd(t, 20, "again"); got[sale.NotLoaded] != 20 {
		t.Fatalf("outcomes %v, want 20 not_loaded", got)
	}
}

func TestSoldOutIsAnsweredFromMemoryButNotToWinners(t *testing.T) {
	s := openShop(t, 3, 1)
	for i := range 3 {
		s.grab(t, "winner-"+itoa(i), "k")
	}
	harness.Eventually(t, 5*time.Second, "the mark stands: refusals no longer reach Redis", func() (bool, string) {
		before := s.calls(t)
		a := s.grab(t, "loser", "k")
		return a.Outcome == sale.SoldOut && s.calls(t) == before, string(a.Outcome)
	})
	if a := s.grab(t, "winner-1", "k"); a.Outcome != sale.Won || !a.Replayed {
		t.Errorf("a winner's retry: %+v, want won and replayed", a)
	}
	if a := s.grab(t, "winner-1", "other"); a.Outcome != sale.AlreadyGrabbed {
		t.Errorf("a winner with another key: %+v, want already_grabbed", a)
	}
	back := sale.Giveback{ID: "adjust:1", SaleID: s.sale.ID, Lines: []sale.Line{{SKU: "A", Quantity: 1}}}
	if err := s.store.Release(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	s.engine.Restocked(s.sale.ID)
	if a := s.grab(t, "loser", "k"); a.Outcome != sale.Won {
		t.Errorf("after stock came back: %+v, want won", a)
	}
}

// calls counts the script calls Redis has seen.
func (s *shop) calls(t *testing.T) string {
	t.Helper()
	info, err := s.redis.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
	count, _, _ := strings.Cut(rest, ",")
	return count
}

func TestStoppingAnswersEveryGrab(t *testing.T) {
	s := openShop(t, 100000, 1)
	var wg sync.WaitGroup
	var won atomic.Int64
	for i := range 50 {
		wg.Go(func() {
			for n := 0; ; n++ {
				a, err := s.engine.Grab(t.Context(), grab.Request{SaleID: s.sale.ID, User: fmt.Sprintf("u-%d-%d", i, n)})
				switch {
				case err != nil || a.Outcome == sale.Unavailable:
					return
				case a.Outcome == sale.Won:
					won.Add(1)
				}
			}
		})
	}
	harness.Eventually(t, 5*time.Second, "the crowd is buying", func() (bool, string) { return won.Load() > 500, "" })
	s.stop()
	wg.Wait()
	inStream := s.inStream(t)
	if len(inStream) != int(won.Load()) || len(s.inRedis(t)) != len(inStream) {
		t.Fatalf("%d heard won, %d in the stream, %d in Redis", won.Load(), len(inStream), len(s.inRedis(t)))
	}
}

func TestAdjustmentsTakeWhatIsLeft(t *testing.T) {
	s := openShop(t, 5, 1)
	take := grab.Adjustment{SaleID: s.sale.ID, SKU: "A", Units: 7, ID: sale.OrderID(s.sale.ID, "adjust", "1"), Note: "broken"}
	a, err := s.engine.Take(t.Context(), take)
	if err != nil || a.Outcome != sale.SoldOut || a.Left != 5 {
		t.Fatalf("got %+v, %v; want sold_out with 5 left", a, err)
	}
	take.Units = 5
	if a, err = s.engine.Take(t.Context(), take); err != nil || a.Outcome != sale.Won {
		t.Fatalf("got %+v, %v; want won", a, err)
	}
	if a := s.grab(t, "u", "k"); a.Outcome != sale.SoldOut {
		t.Errorf("after everything was taken: %+v", a)
	}
	if g := s.inStream(t)[take.ID]; g.Kind != sale.GrantAdjust || g.Units() != 5 {
		t.Errorf("in the stream: %+v", g)
	}
}

func TestAWinnerWhoAsksAgainAfterTheEndHearsOfTheOrder(t *testing.T) {
	s := openShop(t, 10, 1)
	first := s.grab(t, "u", "k")
	for i, change := range []func(*sale.Sale){
		func(over *sale.Sale) { over.EndsAt = time.Now().Add(-time.Minute) },
		func(paused *sale.Sale) { paused.Status = sale.StatusPaused },
	} {
		closed := *s.sale
		closed.Revision += int64(i) + 1
		change(&closed)
		s.engine.Put(&closed)
		again := s.grab(t, "u", "k")
		if !again.Replayed || again.OrderID != first.OrderID || (again.Outcome != sale.Won && again.Outcome != sale.Pending) {
			t.Errorf("the winner heard %+v, want the order %s", again, first.OrderID)
		}
		if a := s.grab(t, "v", "k"); a.Outcome != sale.Ended && a.Outcome != sale.Paused {
			t.Errorf("somebody else heard %+v", a)
		}
	}
}

func TestTheOutboxIsTrimmedWhileOthersAreRefused(t *testing.T) {
	s := openShop(t, 10, 1)
	first := s.grab(t, "u", "k")
	harness.Eventually(t, 5*time.Second, "the win is known to be durable", func() (bool, string) {
		if a := s.grab(t, "u", "other"); a.Outcome != sale.AlreadyGrabbed {
			t.Fatalf("got %+v, want a refusal that Redis decides", a)
		}
		found, ok, err := s.store.Find(t.Context(), s.sale.ID, first.OrderID)
		return err == nil && ok && found.Durable, ""
	})
}

func TestRepetitionsOfLongGrabsFitIntoAMessage(t *testing.T) {
	s := openShop(t, sale.MaxStock, 0)
	wide := *s.sale
	wide.Revision++
	wide.Items = nil
	stocked := map[string]int64{}
	var lines []sale.Line
	for i := range sale.MaxLines {
		sku := fmt.Sprintf("%s-%02d", strings.Repeat("long", 15), i)
		wide.Items = append(wide.Items, sale.Item{SKU: sku, Stock: sale.MaxStock})
		lines = append(lines, sale.Line{SKU: sku, Quantity: 1})
		stocked[sku] = sale.MaxStock
	}
	s.engine.Put(&wide)
	s.load(t, stocked)
	for _, asked := range [][]sale.Line{lines, lines[:1]} { // the second time the keys come with short bodies
		var wg sync.WaitGroup
		for i := range 600 {
			wg.Go(func() {
				a, err := s.engine.Grab(t.Context(), grab.Request{SaleID: wide.ID, User: "u", Key: itoa(i), Lines: asked})
				if err != nil || a.Outcome != sale.Won || len(a.Lines) != len(lines) {
					t.Errorf("grab %d: %s with %d lines, %v", i, a.Outcome, len(a.Lines), err)
				}
			})
		}
		wg.Wait()
	}
	s.requireSettled(t, 600)
}

func TestASaleThatIsGoneIsLetGoOf(t *testing.T) {
	s := openShop(t, 10, 1)
	s.grab(t, "u", "k")
	s.requireSettled(t, 1)
	s.engine.Forget(s.sale.ID)
	harness.Eventually(t, 10*time.Second, "its batcher has ended", func() (bool, string) {
		n := s.engine.Selling()
		return n == 0, itoa(n)
	})
	s.engine.Put(s.sale)
	if a := s.grab(t, "v", "k"); a.Outcome != sale.Won {
		t.Errorf("after it came back: %+v, want won", a)
	}
}
