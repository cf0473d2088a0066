package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestMain(m *testing.M) { harness.Main(m) }

// wait is how long a test waits for something that is bound to happen.
const wait = 30 * time.Second

// open connects to the server and makes the topology.
func open(t testing.TB, server *harness.NATSServer, change ...func(*stream.Config)) *stream.Stream {
	t.Helper()
	s := openOnly(t, server.URL(), change...)
	must(t, s.AwaitTopology(t.Context()))
	return s
}

// openOnly does not wait for the server.
func openOnly(t testing.TB, url string, change ...func(*stream.Config)) *stream.Stream {
	t.Helper()
	cfg := stream.Config{URL: url, Logger: slog.New(slog.DiscardHandler), ReconnectWait: 10 * time.Millisecond, FirstSeq: 1}
	for _, f := range change {
		f(&cfg)
	}
	s, err := stream.Open(cfg)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// quick makes a client notice soon that nobody answers.
func quick(c *stream.Config) {
	c.RequestTimeout, c.PublishTimeout, c.PingInterval = 300*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

// begin publishes the next fence of a sale.
func begin(t testing.TB, s *stream.Stream, saleID string) stream.Fence {
	t.Helper()
	return get[stream.Fence](t)(s.BeginGeneration(t.Context(), saleID, 1))
}

// maker makes the batches of one grab process in one generation of a sale.
type maker struct {
	saleID  string
	process string
	fence   stream.Fence
	grants  int // per batch

	mu     sync.Mutex
	number uint64
}

// next returns the next batch; its grants carry its number.
func (m *maker) next() (sale.BatchHead, []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	head := sale.BatchHead{Generation: m.fence.Generation, Fence: m.fence.Seq, Number: m.number, Process: m.process}
	batch := sale.Batch{BatchHead: head}
	at := time.UnixMilli(1_700_000_000_000)
	for i := range m.grants {
		user := fmt.Sprintf("user-%s-%d-%d", m.process, m.number, i)
		batch.Grants = append(batch.Grants, sale.Grant{
			Kind: sale.GrantGrab, OrderID: sale.OrderID(m.saleID, user, "k"), User: user, Key: "k",
			At: at, ExpiresAt: at.Add(time.Hour), Lines: []sale.Line{{SKU: "A", Quantity: 1, PriceCents: 100}},
		})
	}
	return head, sale.EncodeBatch(batch)
}

// publish publishes the next batch.
func (m *maker) publish(t testing.TB, s *stream.Stream) uint64 {
	t.Helper()
	head, body := m.next()
	return get[uint64](t)(s.Publish(t.Context(), m.saleID, head, body))
}

// stored is a batch as ReadGrants found it.
type stored struct {
	seq   uint64
	batch sale.Batch
}

// readAll returns all batches of a sale.
func readAll(t testing.TB, s *stream.Stream, saleID string) []stored {
	t.Helper()
	status := get[stream.Status](t)(s.Info(t.Context()))
	var all []stored
	must(t, s.ReadGrants(t.Context(), saleID, 0, status.LastSeq, func(seq uint64, b sale.Batch) error {
		all = append(all, stored{seq, b})
		return nil
	}))
	return all
}

// run runs f beside the test and stops it, and waits for it, at the test's end.
func run(t testing.TB, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}
