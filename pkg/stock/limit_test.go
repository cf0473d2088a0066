package stock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// noon is in the window of grabs that name no other time. Counts of windows that
// are long over leave Redis, so it is of today.
var noon = time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)

// limited decides a batch under limits at a time; each ask may end in "@ADDRESS".
func (s *till) limited(want string, limits []sale.Limit, at time.Time, asks ...string) stock.Decision {
	s.t.Helper()
	b := s.batch(0, asks...)
	b.Limits = limits
	for i := range b.Asks {
		g := *b.Asks[i].Grant
		g.At, g.IP = at, "192.0.2.1"
		b.Asks[i] = stock.Ask{Grant: &g, Record: sale.AppendGrant(nil, &g)}
	}
	return s.decide(want, b)
}

func limits(spec ...any) []sale.Limit {
	var all []sale.Limit
	for i := 0; i < len(spec); i += 3 {
		all = append(all, sale.Limit{
			Scope: sale.LimitScope(spec[i].(string)), Window: sale.LimitWindow(spec[i+1].(string)), Max: int64(spec[i+2].(int)),
		})
	}
	return all
}

// used is what stands in Redis of one limit's window.
func (s *till) used(limit, period string) string {
	s.t.Helper()
	got := map[string]int64{}
	if err := s.store.Used(s.t.Context(), s.id, limit, period, func(subject string, units int64) error {
		got[subject] = units
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(got)
}

func (s *till) requireUsed(limit, period, want string) {
	s.t.Helper()
	if got := s.used(limit, period); got != want {
		s.t.Errorf("used of %s in %q: %s, want %s", limit, period, got, want)
	}
}

func TestAllLimitsHoldAtOnceOrNothingIsTaken(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(100))
	day, month := noon.Format("2006-01-02"), noon.Format("2006-01")
	all := limits("user", "day", 2, "ip", "month", 4, "sale", "sale", 5)
	s.limited("W C(user_day) W C(ip_month)", all, noon, "ann a1 A:2", "ann a2 A:1", "bob b1 A:2", "cid c1 A:1")
	s.requireUsed("user_day", day, "map[ann:2 bob:2]")
	s.requireUsed("ip_month", month, "map[192.0.2.1:4]")
	s.requireUsed("sale_sale", "", "map[:4]")

	// Raising a maximum needs no change of any count.
	all[1].Max = 9
	s.limited("C(sale_sale) W", all, noon, "cid c2 A:2", "cid c3 A:1")
	s.requireUsed("sale_sale", "", "map[:5]")
	// Lowering it below what is used takes nothing back and grants nothing new.
	all[2].Max = 1
	s.limited("C(sale_sale) R(p1/1)", all, noon, "dan d1 A:1", "ann a1 A:2")
	s.requireUsed("sale_sale", "", "map[:5]")
	st := must(s.store.State(t.Context(), s.id, []string{"A"}))(t)
	if st.Remaining["A"] != 95 {
		t.Errorf("%d units are left, want 95", st.Remaining["A"])
	}
}

func TestLimitsCountUnlimitedStockToo(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(sale.Unlimited))
	s.limited("W C(sale_day)", limits("sale", "day", 3), noon, "ann a1 A:3", "bob b1 A:1")
	s.requireUsed("sale_day", noon.Format("2006-01-02"), "map[:3]")
}

func TestNoLimitHoldsAnAdjustment(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(5))
	all := limits("sale", "sale", 0)
	s.limited("W", all, noon, "- x A:2")
	s.limited("C(sale_sale) W S(A)", all, noon, "ann a1 A:1", "- y A:2", "- z A:2")
	s.requireUsed("sale_sale", "", "map[]")
}

func TestANewWindowBeginsAtNothing(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(100))
	all := limits("user", "day", 1)
	midnight := noon.Add(12 * time.Hour)
	s.limited("W C(user_day)", all, midnight.Add(-time.Millisecond), "ann a1 A:1", "ann a2 A:1")
	s.limited("W C(user_day)", all, midnight, "ann a3 A:1", "ann a4 A:1")
	// One batch may hold grabs from both sides of midnight.
	b := s.batch(0, "bob b1 A:1", "bob b2 A:1", "bob b3 A:1")
	b.Limits = all
	for i, at := range []time.Time{midnight.Add(-time.Millisecond), midnight, midnight} {
		b.Asks[i].Grant.At = at
	}
	s.decide("W W C(user_day)", b)
	for _, day := range []time.Time{noon, midnight} {
		key := s.keys.Used("user_day", day.Format("2006-01-02"))
		ttl := must(s.client.PTTL(t.Context(), key).Result())(t)
		left := day.Truncate(24 * time.Hour).Add(24*time.Hour + stock.UsedGrace)
		if until := time.Now().Add(ttl); until.Before(left.Add(-time.Minute)) || until.After(left.Add(time.Minute)) {
			t.Errorf("the counts of %s are kept until %s, want %s", day.Format("2006-01-02"), until, left)
		}
	}
}

func TestGivebackTakesUnitsOffItsCounters(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(100))
	all := limits("user", "day", 2, "ip", "day", 5, "sale", "month", 3)
	day, month := noon.Format("2006-01-02"), noon.Format("2006-01")
	s.limited("W W", all, noon, "ann a1 A:2", "bob b1 A:1")
	g := s.giveback("cancel:a1", "ann a1 A:2")
	g.Counts = []sale.CountStep{
		{Limit: "user_day", Period: day, Subject: "ann", Units: 2}, {Limit: "ip_day", Period: day, Subject: "192.0.2.1", Units: 2},
		{Limit: "sale_month", Period: month, Units: 2}, {Limit: "user_day", Period: "1999-12-31", Subject: "ann", Units: 2},
	}
	for range 2 { // and only once
		if err := s.store.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	s.requireUsed("user_day", day, "map[ann:0 bob:1]")
	s.requireUsed("ip_day", day, "map[192.0.2.1:1]")
	s.requireUsed("sale_month", month, "map[:1]")
	s.requireUsed("user_day", "1999-12-31", "map[]")
	s.limited("W C(sale_month)", all, noon, "ann a2 A:2", "cid c1 A:1")
}

func TestLossOfACountRefuses(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(100))
	all := limits("user", "sale", 1, "sale", "day", 9)
	s.limited("W W", all, noon, "ann a1 A:1", "bob b1 A:1")
	for _, lose := range []func() error{
		func() error { return s.client.Del(t.Context(), s.keys.Used("user_sale", "")).Err() },
		func() error {
			return s.client.HDel(t.Context(), s.keys.Used("sale_day", noon.Format("2006-01-02")), "*").Err()
		},
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		b := s.batch(0, "cid c1 A:1")
		b.Limits, b.Asks[0].Grant.At = all, noon
		_, err := s.store.Grab(t.Context(), b)
		requireReason(t, err, stock.ReasonDamaged)
		_, err = s.store.State(t.Context(), s.id, []string{"A"}) // so whoever is asked for a restore sees it, too
		requireReason(t, err, stock.ReasonDamaged)
		s.restore(units(98), func(r *stock.Restore) error {
			r.Window(all[0], noon, time.UTC)
			r.Window(all[1], noon, time.UTC)
			return errors.Join(
				r.Used(t.Context(), "user_sale", "", "ann", 1), r.Used(t.Context(), "user_sale", "", "bob", 1),
				r.Used(t.Context(), "sale_day", noon.Format("2006-01-02"), "", 2),
			)
		})
		s.limited("C(user_sale)", all, noon, "ann "+fmt.Sprint("a", s.number)+" A:1")
	}
	s.limited("W C(sale_day)", limits("user", "sale", 9, "sale", "day", 3), noon, "cid c2 A:1", "cid c3 A:1")
}

func TestACountOfAWindowThatIsLongOverIsNotMissed(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(100))
	all := limits("user", "day", 1)
	old := noon.Add(-stock.UsedGrace - 48*time.Hour)
	s.limited("W", all, old, "ann a1 A:1") // its count expires at once
	s.requireUsed("user_day", old.Format("2006-01-02"), "map[]")
	must(s.store.State(t.Context(), s.id, []string{"A"}))(t)
	s.limited("W", all, noon, "ann a2 A:1")
}

func TestRestoreForgetsWhatIsNotCountedAnyMore(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(100))
	all := limits("user", "day", 1)
	day := noon.Format("2006-01-02")
	s.limited("W", all, noon, "ann a1 A:1")
	s.restore(units(100)) // the grant was fenced out
	s.requireUsed("user_day", day, "map[]")
	s.limited("W", all, noon, "ann a2 A:1")

	// Where meta is gone, the window has to be named.
	if err := s.client.Del(t.Context(), s.keys.Meta()).Err(); err != nil {
		t.Fatal(err)
	}
	s.restore(units(100), func(r *stock.Restore) error {
		r.Window(all[0], noon, time.UTC)
		return nil
	})
	s.limited("W", all, noon, "ann a3 A:1")
}

func TestRateIsExactOverAllProcesses(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(1000))
	const perSecond = 100
	won := 0
	start := time.Now()
	for n := range 10 {
		b := s.batch(0)
		b.PerSecond, b.Process, b.Number = perSecond, fmt.Sprintf("q%d", n), 1
		for i := range 50 {
			b.Asks = append(b.Asks, ask(fmt.Sprintf("u%d o%d-%d A:1", i, n, i)))
		}
		d := must(s.store.Grab(t.Context(), b))(t)
		for _, a := range d.Answers {
			switch a.Code {
			case stock.CodeWon:
				won++
			case stock.CodeThrottled:
				if a.Wait <= 0 || a.Wait > time.Second/perSecond+time.Millisecond {
					t.Fatalf("told to wait %s, want at most %s", a.Wait, time.Second/perSecond)
				}
			default:
				t.Fatalf("answer %c", a.Code)
			}
		}
	}
	// A full bucket at the beginning, and what flowed in meanwhile.
	most := perSecond + int(time.Since(start).Seconds()*perSecond) + 1
	if won < perSecond || won > most {
		t.Errorf("%d were decided, want %d to %d", won, perSecond, most)
	}
	// A replay is no new grab.
	b := s.batch(0, "u0 o0-0 A:1")
	b.PerSecond, b.Process = perSecond, "q0"
	if d := must(s.store.Grab(t.Context(), b))(t); d.Answers[0].Code != stock.CodeReplayed {
		t.Errorf("a replay was answered %c", d.Answers[0].Code)
	}
}
