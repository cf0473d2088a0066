package stock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// openEnding restores an empty sale of unlimited stock whose state ends at a time.
func openEnding(t *testing.T, ends time.Time) *till {
	t.Helper()
	s := openTill(t, harness.Redis(t).Client(), units(sale.Unlimited))
	r := s.store.BeginRestore(s.id, 2)
	r.Window(limits("sale", "day", 0)[0], noon, time.UTC)
	s.gen, s.fence = s.gen+1, s.fence+1
	err := r.Commit(t.Context(), stock.Target{
		Era: s.era, Generation: s.gen, Fence: s.fence, Remaining: units(sale.Unlimited), Ends: ends,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lives lists the keys of the sale with when they expire: at the end, how long
// after it, or never.
func (s *till) lives(ends time.Time) string {
	s.t.Helper()
	var all []string
	for _, key := range s.client.Keys(s.t.Context(), strings.TrimSuffix(s.keys.Meta(), "meta")+"*").Val() {
		at := s.client.PExpireTime(s.t.Context(), key).Val()
		name := key[strings.Index(key, "}:")+2:]
		switch {
		case at < 0:
			all = append(all, name+" never")
		default:
			all = append(all, fmt.Sprintf("%s %s", name, time.UnixMilli(at.Milliseconds()).Sub(ends)))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func TestAStateThatEndsLeavesRedisAsAWhole(t *testing.T) {
	ends := noon.Add(36 * time.Hour).Truncate(24 * time.Hour)
	s := openEnding(t, ends)
	if got, want := s.lives(ends), "meta 0s, stock:A 0s"; got != want {
		t.Errorf("after the restore: %s, want %s", got, want)
	}
	// What the scripts make expires with it. An outbox waits longer for its relay.
	s.limited("W W C(sale_day)", limits("sale", "day", 3), noon, "ann a1 A:1", "ann a2 A:2", "ann a3 A:1")
	s.release("return:a1:r", "- a1 A:1")
	want := "applied 0s, buyers 0s, grants 0s, meta 0s, outbox:p1 48h0m0s, outboxes 48h0m0s, stock:A 0s, used:sale_day:" +
		noon.Format("2006-01-02") + " 0s"
	if got := s.lives(ends); got != want {
		t.Errorf("after a grab and a giveback: %s, want %s", got, want)
	}
}

func TestAStateThatHasEndedIsNotLoaded(t *testing.T) {
	s := openEnding(t, time.Now().Add(-time.Second))
	b := s.batch(0, "ann a1 A:1")
	if _, err := s.store.Grab(t.Context(), b); err == nil || !strings.Contains(err.Error(), stock.ReasonNoState) {
		t.Errorf("a grab in a state that has ended: %v, want %s", err, stock.ReasonNoState)
	}
}

func TestEachAskHearsWhatWasUsedRightAfterIt(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(sale.Unlimited))
	all := limits("user", "day", 9, "sale", "day", 5)
	requireUsed := func(d stock.Decision, want ...int64) {
		t.Helper()
		for i, a := range d.Answers {
			if a.Used != want[i] {
				t.Errorf("answer %d: %d units used, want %d", i, a.Used, want[i])
			}
		}
	}
	d := s.limited("W W C(sale_day) W", all, noon, "ann a1 A:1", "bob b1 A:3", "ann a2 A:2", "cid c1 A:1")
	requireUsed(d, 1, 4, 4, 5)
	// A replay takes nothing, and hears what is used by then.
	d = s.limited("R(p1/1)", all, noon, "ann a1 A:1")
	requireUsed(d, 5)
	d = s.limited("C(sale_day) W", all, noon.Add(24*time.Hour), "dan d1 A:6", "dan d2 A:2")
	requireUsed(d, 0, 2)
	// Without a limit of everybody there is nothing to hear.
	requireUsed(s.limited("W", limits("user", "day", 99), noon, "eve e1 A:1"), stock.NoCount)
}

func TestTheClockIsTheServers(t *testing.T) {
	s := openTill(t, harness.Redis(t).Client(), units(1))
	at, err := s.store.Clock(t.Context(), s.id)
	if off := time.Since(at); err != nil || off < -time.Minute || off > time.Minute {
		t.Errorf("the clock says %s, %v", at, err)
	}
}
