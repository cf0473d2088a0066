package services_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

// requireNoDeadLetters holds that nothing was given up.
func (s *stack) requireNoDeadLetters(t *testing.T, saleID string) {
	t.Helper()
	var page struct {
		Letters []map[string]any `json:"dead_letters"`
	}
	if status := s.call(t, "GET", "/admin/v1/sales/"+saleID+"/dead-letters", nil, &page); status != http.StatusOK {
		t.Fatalf("dead letters: %d", status)
	}
	if len(page.Letters) != 0 {
		t.Errorf("dead letters: %v", page.Letters)
	}
}

func (s *stack) requireWhole(t *testing.T, saleID string, reports []load.Report) {
	t.Helper()
	s.requireClean(t, saleID)
	s.requireOrders(t, saleID, reports, 1000)
	s.requireNoDeadLetters(t, saleID)
}

func TestAnOrderWorkerMayBeKilledInMidBatch(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.openSale(t, 1000)
	reports := s.stormWhile(t, crowd(id), 200, func() { s.orders[0].Kill() })
	s.requireWhole(t, id, reports)
}

func TestNATSMayBeKilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.openSale(t, 1000)
	reports := s.stormWhile(t, crowd(id), 200, func() { s.nats.Kill(); s.nats.Start() })
	s.requireWhole(t, id, reports)
}

func TestMariaDBMayBeKilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.openSale(t, 1000)
	reports := s.stormWhile(t, crowd(id), 200, func() { s.mysql.Kill(); s.mysql.Start() })
	s.requireWhole(t, id, reports)
}

// A grab process dies between the script and the publication: NATS is frozen, so
// that nothing is stored, then killed, so that nothing it had received counts. What
// was granted stands in the outbox alone, and another process publishes it.
func TestWhatADeadGrabProcessGrantedBecomesOrders(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.openSale(t, 1000)
	s.nats.Pause()
	asked := make(chan load.Report, 1)
	go func() {
		report, err := load.Run(t.Context(), load.Config{
			URL: s.grabs[0].url, SaleID: id, Users: 50, Retries: -1, Connections: 50, RequestTimeout: 5 * time.Second,
		})
		if err != nil {
			t.Errorf("load: %v", err)
		}
		asked <- report
	}()
	grants := "doorbuster:{" + id + "}:grants"
	harness.Eventually(t, 10*time.Second, "grants stand in Redis", func() (bool, string) {
		return s.redis.Client().HLen(t.Context(), grants).Val() > 0, ""
	})
	s.grabs[0].Kill()
	granted := s.redis.Client().HLen(t.Context(), grants).Val()
	s.nats.Kill()
	s.nats.Start()
	if report := <-asked; len(report.Winners) != 0 {
		t.Errorf("%d clients were told won while nothing could be stored", len(report.Winners))
	}
	harness.Eventually(t, 30*time.Second, "every grant has its order", func() (bool, string) {
		n, _ := s.sold(t, id)
		return n == granted, ""
	})
	s.requireClean(t, id)
	s.requireNoDeadLetters(t, id)
}
