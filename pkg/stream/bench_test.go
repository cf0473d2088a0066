package stream_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// grantsOf50KB make a batch of about 50 KB.
const grantsOf50KB = 600

// BenchmarkPublish is one batch of 50 KB, acknowledged after fsync.
func BenchmarkPublish(b *testing.B) {
	for _, publishers := range []int{1, 8} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			benchPublish(b, open(b, harness.NATS(b)), publishers)
		})
	}
}

func BenchmarkPublishReplicated(b *testing.B) {
	clientURL, _ := newCluster(b)
	for _, publishers := range []int{1, 4, 8} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			s := openOnly(b, clientURL, replicated)
			must(b, s.AwaitTopology(b.Context()))
			benchPublish(b, s, publishers)
		})
	}
}

func benchPublish(b *testing.B, s *stream.Stream, publishers int) {
	b.Helper()
	saleID := harness.Name(b)
	_, body := (&maker{saleID: saleID, process: "p", grants: grantsOf50KB}).next()
	fence := begin(b, s, saleID)
	_, records, err := sale.ParseHead(body)
	must(b, err)
	b.SetBytes(int64(len(body)))
	b.ResetTimer()
	var number atomic.Uint64
	spread(b, publishers, func() error {
		head := sale.BatchHead{Generation: fence.Generation, Fence: fence.Seq, Number: number.Add(1), Process: "p"}
		body := append(sale.AppendHead(nil, head), records...)
		return publishUntilClear(context.Background(), s, saleID, head, body)
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
}

// spread calls f b.N times, from some goroutines at once.
func spread(b *testing.B, goroutines int, f func() error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, goroutines)
	for range goroutines {
		go func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range goroutines {
		must(b, <-done)
	}
}

// BenchmarkReadGrants reads a sale's whole log, in messages of one grant (the worst) and of 600.
func BenchmarkReadGrants(b *testing.B) {
	for _, c := range []struct{ messages, grants int }{{20_000, 1}, {500, grantsOf50KB}} {
		b.Run(fmt.Sprintf("messages=%d/grants=%d", c.messages, c.grants), func(b *testing.B) {
			s := open(b, lazySync(b))
			m := &maker{saleID: "s1", process: "p", fence: begin(b, s, "s1"), grants: c.grants}
			fill(b, s, m, c.messages)
			end := begin(b, s, "s1")
			b.ResetTimer()
			for range b.N {
				visited := 0
				must(b, s.ReadGrants(b.Context(), "s1", 0, end.Seq, func(_ uint64, batch sale.Batch) error {
					visited += len(batch.Grants)
					return nil
				}))
				if visited != c.messages*c.grants {
					b.Fatalf("visited %d grants, want %d", visited, c.messages*c.grants)
				}
			}
			b.ReportMetric(float64(b.N*c.messages)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(b.N*c.messages*c.grants)/b.Elapsed().Seconds(), "grants/s")
		})
	}
}
