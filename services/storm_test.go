package services_test

import (
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

// 50,000 requests of 20,000 users on 2,000 units, from two grab processes and two
// order workers: every user asks at both processes, with the same keys.
func TestAStormSellsTheWholeStockOnceEach(t *testing.T) {
	s := startStack(t)
	id := s.openSale(t, 2000)
	reports := s.storm(t, load.Config{SaleID: id, Users: 20_000, Grabs: 25_000, Connections: 256, Timeout: 3 * time.Minute})
	s.requireClean(t, id)
	s.requireOrders(t, id, reports, 2000)
	winners := map[string]bool{}
	for _, report := range reports {
		if report.Undecided > 0 {
			t.Errorf("%d grabs were never decided; first problem: %s", report.Undecided, report.Problem)
		}
		for _, w := range report.Winners {
			winners[w.OrderID] = true
		}
	}
	if len(winners) != 2000 {
		t.Errorf("%d different orders were won in front of clients, want 2000", len(winners))
	}
}

// whatever happens to Redis in the middle of a sale: no wrong sale before the
// rebuild, recovery by itself, and at the end the whole stock is sold exactly once.
func TestRedisMayLoseItsMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		options []harness.RedisOption
		lose    func(*testing.T, *stack, string)
	}{
		{"restart without AOF", nil, func(_ *testing.T, s *stack, _ string) { s.redis.Kill(); s.redis.Start() }},
		{"restart with AOF", []harness.RedisOption{harness.WithAOF()}, func(_ *testing.T, s *stack, _ string) { s.redis.Kill(); s.redis.Start() }},
		{"FLUSHALL", nil, func(t *testing.T, s *stack, _ string) { s.redis.Client().FlushAll(t.Context()) }},
		{"the buyers key is gone", nil, func(t *testing.T, s *stack, id string) {
			if n := s.redis.Client().Del(t.Context(), "doorbuster:{"+id+"}:buyers").Val(); n != 1 {
				t.Errorf("deleted %d keys, want the buyers", n)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, tc.options...)
			id := s.openSale(t, 1000)
			reports := s.stormWhile(t, crowd(id), 300, func() { tc.lose(t, s, id) })
			s.requireClean(t, id)
			s.requireOrders(t, id, reports, 1000)
		})
	}
}

// crowd is demand enough for the whole stock whatever happens, over a few seconds.
func crowd(saleID string) load.Config {
	return load.Config{
		SaleID: saleID, Users: 4000, Rate: 800, Duplicates: 0.1, Retries: 100, Connections: 128, Timeout: 2 * time.Minute,
	}
}

// stormWhile runs a storm and, once the ledger has sold units, what, on the
// test's own goroutine.
func (s *stack) stormWhile(t *testing.T, cfg load.Config, units int64, what func()) []load.Report {
	t.Helper()
	told := make(chan []load.Report, 1)
	go func() { told <- s.storm(t, cfg) }()
	harness.Eventually(t, time.Minute, "the sale is in full swing", func() (bool, string) {
		n, _ := s.sold(t, cfg.SaleID)
		return n >= units, ""
	})
	what()
	return <-told
}
