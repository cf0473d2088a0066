package services_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// clocked is a grab engine with a clock that the test sets.
type clocked struct {
	*grab.Engine
	at atomic.Pointer[time.Time]
}

func (w *world) clocked(t *testing.T, s *sale.Sale) *clocked {
	t.Helper()
	c := &clocked{}
	engine, err := grab.New(grab.Config{Process: grab.NewProcess(), SoldOutTTL: -1, Now: func() time.Time { return *c.at.Load() }},
		w.store, w.stream, nil, slog.New(slog.DiscardHandler))
	must(t, err)
	c.Engine = engine
	c.set(time.Now())
	engine.Put(s)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = engine.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	harness.Eventually(t, 5*time.Second, "the engine runs", func() (bool, string) { return engine.Ready(), "" })
	return c
}

func (c *clocked) set(at time.Time) { c.at.Store(&at) }

// nextChange is the next day on which the clocks of a zone change, as its midnight
// and the midnight after it.
func nextChange(t *testing.T, name string) (from, to time.Time) {
	t.Helper()
	zone, err := time.LoadLocation(name)
	must(t, err)
	_, change := time.Now().In(zone).ZoneBounds()
	y, m, d := change.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, zone), time.Date(y, m, d+1, 0, 0, 0, 0, zone)
}

// One unit a day each: a day is a day of the sale's timezone, also when the clocks
// change on it, and after Redis has lost everything.
func TestADayLimitTurnsAtMidnightOfTheSaleOnTheDayTheClocksChange(t *testing.T) {
	w := openWorld(t, 0)
	from, to := nextChange(t, "Europe/Berlin")
	if length := to.Sub(from); length == 24*time.Hour {
		t.Fatalf("the day from %s has %s", from, length)
	}
	id := harness.Name(t)
	w.open(t, sale.Sale{ID: id, Items: []sale.Item{{SKU: "A", Stock: 100}}, Rules: sale.Rules{
		Limits: []sale.Limit{{Scope: sale.ScopeUser, Window: sale.WindowDay, Max: 1}},
	}})
	s, err := w.ledger.GetSale(t.Context(), id)
	must(t, err)
	c := w.clocked(t, &s)
	for n, step := range []struct {
		at   time.Time
		want sale.Outcome
		wipe bool
	}{
		{from.Add(-time.Millisecond), sale.Won, false},
		{from.Add(-time.Millisecond), sale.LimitExceeded, false},
		{from, sale.Won, false},
		{from.Add(12 * time.Hour), sale.LimitExceeded, true},
		{to.Add(-time.Millisecond), sale.LimitExceeded, false},
		{to, sale.Won, false},
		{to.Add(23 * time.Hour), sale.LimitExceeded, true},
	} {
		if step.wipe {
			must(t, w.redis.FlushAll(t.Context()).Err())
			report, err := w.rec.Reconcile(t.Context(), id, reconcile.ReasonForced)
			must(t, err)
			if report.Result != reconcile.ResultRestored {
				t.Fatalf("restored %+v", report)
			}
		}
		c.set(step.at)
		got, err := c.Grab(t.Context(), grab.Request{SaleID: id, User: "ann", Key: fmt.Sprint(n)})
		must(t, err)
		if got.Outcome != step.want || (got.Outcome == sale.LimitExceeded && got.Limit != "user_day") {
			t.Fatalf("step %d at %s: %s %s, want %s", n, step.at, got.Outcome, got.Limit, step.want)
		}
	}
	w.requireSound(t, id)
}
