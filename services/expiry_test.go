package services_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

// ordersOf lists the sale's orders in a status.
func (s *stack) ordersOf(t *testing.T, saleID, status string) []string {
	t.Helper()
	var page struct {
		Orders []struct {
			ID string `json:"order_id"`
		} `json:"orders"`
	}
	if code := s.call(t, "GET", "/admin/v1/sales/"+saleID+"/orders?limit=200&status="+status, nil, &page); code != http.StatusOK {
		t.Fatalf("orders: %d", code)
	}
	ids := make([]string, len(page.Orders))
	for i, o := range page.Orders {
		ids[i] = o.ID
	}
	return ids
}

// A crowd grabs and hardly anybody pays, so that the same units are sold again and
// again, from two grab processes; of the two order services that end the orders one
// is killed on the way.
func TestUnpaidOrdersExpireOnceAlthoughAnOrderServiceIsKilled(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	const units = 200
	id := harness.Name(t)
	now := time.Now().UTC()
	if status := s.call(t, "POST", "/admin/v1/sales", map[string]any{
		"id": id, "name": "A drop", "starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour), "payment_window": "1s",
		"items": []map[string]any{{"sku": "A", "stock": units}},
	}, nil); status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	if status := s.call(t, "POST", "/admin/v1/sales/"+id+"/approve", nil, nil); status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	paid := 0
	s.stormWhile(t, load.Config{SaleID: id, Users: 1500, Rate: 300, Connections: 64, Timeout: time.Minute}, 50, func() {
		harness.Eventually(t, 30*time.Second, "somebody pays", func() (bool, string) {
			paid += s.payWhatWaits(t, id)
			return paid > 0, ""
		})
		harness.Eventually(t, 30*time.Second, "orders expire", func() (bool, string) {
			n := len(s.ordersOf(t, id, "expired"))
			return n > 50, fmt.Sprint(n)
		})
		paid += s.payWhatWaits(t, id)
		s.orders[0].Kill()
	})
	paid += s.payWhatWaits(t, id)
	harness.Eventually(t, 60*time.Second, "everything that is not paid has expired", func() (bool, string) {
		n := len(s.ordersOf(t, id, "pending_payment"))
		return n == 0, fmt.Sprint(n)
	})
	s.requireClean(t, id)
	sold, remaining := s.sold(t, id)
	orders := len(s.ledgerOrders(t, id))
	if sold != int64(paid) || remaining == nil || *remaining != units-sold {
		t.Errorf("%d units are sold for %d paid orders, %v remain of %d", sold, paid, remaining, units)
	}
	if paid == 0 || orders <= units {
		t.Errorf("%d orders, %d of them paid: no unit was sold twice", orders, paid)
	}
}

// payWhatWaits pays some of the orders that wait for it, and returns how many; the
// others have expired by then.
func (s *stack) payWhatWaits(t *testing.T, saleID string) (paid int) {
	t.Helper()
	for _, order := range s.ordersOf(t, saleID, "pending_payment") {
		var problem struct {
			Code string `json:"code"`
		}
		switch status := s.call(t, "POST", "/admin/v1/orders/"+order+"/pay", nil, &problem); {
		case status == http.StatusOK:
			paid++
		case status != http.StatusConflict || problem.Code != "order_expired":
			t.Errorf("pay: %d %s", status, problem.Code)
		}
	}
	return paid
}
