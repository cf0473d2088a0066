package reconcile

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// benchmarkGrants is the size of a large sale.
const benchmarkGrants = 1_000_000

// BenchmarkRebuild rebuilds a sale of a million grants after Redis lost everything,
// from a ledger that has all of them, and from a stream of which the ledger has
// written nothing.
func BenchmarkRebuild(b *testing.B) {
	for name, fill := range map[string]func(*shop){"ledger": (*shop).fillLedger, "stream": (*shop).fillStream} {
		b.Run(name, func(b *testing.B) {
			s := openShop(b, benchmarkGrants+1)
			s.rec.cfg.Chunk = 1000
			s.reconcile(ResultRestored, stock.ReasonNoState)
			fill(s)
			peak := watchHeap(b)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				s.must(s.client.FlushAll(b.Context()).Err())
				b.StartTimer()
				report := s.reconcile(ResultRestored, stock.ReasonNoState)
				if report.Restored.Grants != benchmarkGrants || report.Restored.Remaining["A"] != 1 {
					b.Fatalf("restored %+v", report.Restored)
				}
				for _, step := range report.Steps {
					if d := time.Duration(step.Duration); d > 50*time.Millisecond {
						b.Logf("%s took %s", step.Step, d)
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(peak())/(1<<20), "peak-heap-MB")
			b.ReportMetric(float64(b.N)*benchmarkGrants/b.Elapsed().Seconds(), "grants/s")
		})
	}
}

// fillLedger makes the orders in the database itself: MariaDB's sequence engine
// is faster than any client.
func (s *shop) fillLedger() {
	s.t.Helper()
	s.must(execute(s.t, s.dsn, fmt.Sprintf(`INSERT INTO orders
		(id, sale_id, user_id, idempotency_key, ip, status, items, generation, created_at, expires_at, reason, updated_at)
		SELECT CONCAT('%[1]s.', SUBSTR(SHA1(seq), 1, 26)), '%[1]s', CONCAT('user-', seq), CONCAT('key-', seq), '192.0.2.1', 'pending_payment',
			'[{"sku":"A","quantity":1,"price_cents":100,"returned":0}]', 1, NOW(3), NOW(3) + INTERVAL 1 HOUR, '', NOW(3)
		FROM seq_1_to_%[2]d ORDER BY 1`, s.id, benchmarkGrants)))
}

func (s *shop) fillStream() {
	s.t.Helper()
	fence, err := s.stream.LastFence(s.t.Context(), s.id)
	s.must(err)
	now := time.Now().UTC()
	const size = 500
	for first := 0; first < benchmarkGrants; first += size {
		batch := sale.Batch{BatchHead: sale.BatchHead{
			Generation: fence.Generation, Fence: fence.Seq, Number: uint64(first/size + 1), Process: "bench",
		}}
		for i := first; i < first+size; i++ {
			u := user(i)
			batch.Grants = append(batch.Grants, sale.Grant{
				Kind: sale.GrantGrab, OrderID: sale.OrderID(s.id, u, key(u)), User: u, Key: key(u), IP: "192.0.2.1",
				At: now, ExpiresAt: now.Add(time.Hour), Lines: []sale.Line{{SKU: "A", Quantity: 1, PriceCents: 100}},
			})
		}
		_, err := s.stream.Publish(s.t.Context(), s.id, batch.BatchHead, sale.EncodeBatch(batch))
		s.must(err)
	}
}

// watchHeap samples the heap until peak is called.
func watchHeap(b *testing.B) (peak func() uint64) {
	b.Helper()
	runtime.GC()
	ctx, cancel := context.WithCancel(b.Context())
	var most uint64
	var watcher sync.WaitGroup
	watcher.Go(func() {
		var stats runtime.MemStats
		for backoff.Pause(ctx, 20*time.Millisecond) {
			runtime.ReadMemStats(&stats)
			most = max(most, stats.HeapInuse)
		}
	})
	return func() uint64 {
		cancel()
		watcher.Wait()
		return most
	}
}
