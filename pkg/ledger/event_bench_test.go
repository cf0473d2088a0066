package ledger_test

import (
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// BenchmarkRecordWithAndWithoutEvents alternates between a Record of 1000 grants that
// writes their events and one that does not, each in a database of its own on one server.
// "ratio" is the speed with events as a part of the speed without.
func BenchmarkRecordWithAndWithoutEvents(b *testing.B) {
	server := harness.SharedMariaDB(b)
	var sides [2]desk
	for i := range sides {
		sides[i] = desk{Ledger: open(b, ledger.Config{DSN: server.NewDatabase(b), NoEvents: i == 1})}
		createBenchSale(b, sides[i], 1)
	}
	var took [2]time.Duration
	n := 0
	for b.Loop() {
		grants := benchBatch(n, 1)
		for i := range sides {
			begin := time.Now()
			r := record(b, sides[i], batchOf(uint64(n+1), grants...))
			took[i] += time.Since(begin)
			equal(b, "orders", r.Orders, benchGrants)
		}
		n += benchGrants
	}
	b.ReportMetric(float64(n)/took[0].Seconds(), "with-events/s")
	b.ReportMetric(float64(n)/took[1].Seconds(), "without-events/s")
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
	b.ReportMetric(0, "ns/op")
}
