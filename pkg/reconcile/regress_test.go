package reconcile

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// withoutNATS stops nats-server, has change work on its files, and starts it again.
func (s *shop) withoutNATS(change func() error) {
	s.t.Helper()
	s.nats.Stop()
	s.must(change())
	s.nats.Start()
	harness.Eventually(s.t, stepLimit, "NATS to be back", func() (bool, string) {
		_, err := s.stream.LastFence(s.t.Context(), s.id)
		return s.stream.Reachable(), fmt.Sprint(err)
	})
}

// NATS loses all its data under a running reconciler: the sale is restored and can
// be sold again without anybody's help, and what the ledger has is counted.
func TestASaleIsLoadedAgainByItselfWhenNATSLostItsData(t *testing.T) {
	s := openShop(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.rec.Run(ctx) }()
	s.awaitLoaded()
	s.grabs(0, 2)
	s.write(0)
	before := s.state().Generation
	s.nats.Stop()
	s.must(os.RemoveAll(s.files))
	s.nats.Start()
	harness.Eventually(t, stepLimit, "the sale to be loaded in a new stream", func() (bool, string) {
		st, err := s.store.State(t.Context(), s.id, []string{"A"})
		if err != nil {
			return false, err.Error()
		}
		fence, err := s.stream.LastFence(t.Context(), s.id)
		return err == nil && st.Generation > before && fence.Seq == st.Fence, fmt.Sprint(st, fence, err)
	})
	s.requireState(3, 2, 2)
	s.sellOut(2, 3)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	s.requireSound()
}

// A copy of the stream's files that is put back keeps its identity, and gives
// sequences out again that the ledger has as written. What was granted under them
// is still counted, whether the new messages end before the written ones or after.
func TestGrantsUnderReusedSequencesAreCounted(t *testing.T) {
	s := openShop(t, 12)
	s.reconcile(ResultRestored, stock.ReasonNoState)
	s.grabs(0, 2)
	s.write(0)
	backup := t.TempDir()
	s.withoutNATS(func() error { return os.CopyFS(backup, os.DirFS(s.files)) })
	s.grabs(2, 6)
	s.write(0)
	written := s.lastSeq()
	s.withoutNATS(func() error {
		if err := os.RemoveAll(s.files); err != nil {
			return err
		}
		return os.CopyFS(s.files, os.DirFS(backup))
	})
	s.grabs(6, 8) // not written
	if last := s.lastSeq(); last >= written {
		t.Fatalf("the stream ends at %d, want it below %d", last, written)
	}
	s.requireRegressedRestore(8)
	s.grabs(8, 10)
	if last := s.lastSeq(); last < written {
		t.Fatalf("the stream ends at %d, want it at %d or beyond", last, written)
	}
	if v := s.verify(); v.AtRest {
		t.Errorf("verification %+v, want it not at rest: four grants are not written", v)
	}
	s.requireRegressedRestore(10)
	s.sellOut(10, 2)
	s.write(0)
	s.must(s.client.FlushAll(t.Context()).Err())
	if report := s.reconcile(ResultRestored, stock.ReasonNoState); report.Read.StreamRegressed || report.Read.Progress == 0 {
		t.Errorf("report %+v, want the progress trusted again once the new messages are written", report)
	}
	s.requireState(0, 12, 12)
}

// requireRegressedRestore loses Redis and requires so many grants to come back.
func (s *shop) requireRegressedRestore(grants int64) {
	s.t.Helper()
	s.must(s.client.FlushAll(s.t.Context()).Err())
	if report := s.reconcile(ResultRestored, stock.ReasonNoState); !report.Read.StreamRegressed || report.Read.Progress != 0 {
		s.t.Errorf("report %+v, want the whole stream read", report)
	}
	s.requireState(12-grants, grants, grants)
}
