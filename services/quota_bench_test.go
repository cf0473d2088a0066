package services_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"golang.org/x/sync/errgroup"
)

// benchWorkers is how many backends ask at a time.
const benchWorkers = 64

// BenchmarkQuotas measures what b.N quotas cost one process (-benchtime 10000x): to
// hear of them, to load them all in one window, to deduct from each, and in memory.
// The reconciler and the order worker run in the same process.
func BenchmarkQuotas(b *testing.B) {
	quotas := float64(b.N)
	q := openQuotasWith(b, 0, reconcile.Config{})
	each(b, func(ctx context.Context, i int) error {
		quota := sale.Quota{Key: quotaName(i), Limit: 1000, Window: sale.WindowDay, Timezone: "Europe/Berlin"}
		s, err := q.ledger.CreateSale(ctx, quota.Sale())
		if err != nil {
			return err
		}
		return q.stream.PutSale(ctx, &s)
	})
	heap := heapNow()
	engine, err := grab.New(grab.Config{
		Process: grab.NewProcess(), PublishDeadline: time.Minute, LoadWait: 10 * time.Minute, LeaseTTL: time.Second, BatcherIdle: 10 * time.Second,
	}, q.store, q.stream, nil, slog.New(slog.DiscardHandler))
	must(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var running errgroup.Group
	b.Cleanup(func() { stop(); _ = running.Wait() })
	running.Go(func() error { return engine.Run(ctx) })
	watch := grab.Follow(engine, q.stream)
	begin := time.Now()
	running.Go(func() error { watch.Run(ctx); return nil })
	<-watch.Ready()
	b.ReportMetric(time.Since(begin).Seconds(), "s/catalogue")
	b.ReportMetric(float64(heapNow()-heap)/quotas, "B/known-quota")

	round := func(name string) time.Duration {
		begin := time.Now()
		each(b, func(ctx context.Context, i int) error {
			a, err := engine.Deduct(ctx, grab.Deduction{Quota: quotaName(i), Key: name, Quantity: 1})
			if err == nil && a.Outcome != sale.Won {
				err = fmt.Errorf("a deduction is %s: %s", a.Outcome, a.Reason)
			}
			return err
		})
		return time.Since(begin)
	}
	b.ReportMetric(quotas/round("first").Seconds(), "loads/s")
	b.ReportMetric(quotas/round("second").Seconds(), "deductions/s")
	inUse, goroutines := heapNow(), runtime.NumGoroutine()
	harness.Eventually(b, 5*time.Minute, "all batchers have ended", func() (bool, string) {
		n := engine.Selling()
		return n == 0, fmt.Sprint(n)
	})
	b.ReportMetric(float64(inUse-heapNow())/quotas, "B/used-quota")
	b.ReportMetric(float64(goroutines-runtime.NumGoroutine())/quotas, "goroutines/used-quota")
}

func quotaName(i int) string { return fmt.Sprint("quota-of-tenant-", i) }

// each does something for every quota, some at a time.
func each(b *testing.B, do func(ctx context.Context, i int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(benchWorkers)
	for i := range b.N {
		group.Go(func() error { return do(ctx, i) })
	}
	must(b, group.Wait())
}

// heapNow is the heap in use after a collection, in bytes, with the stacks.
func heapNow() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
