package services_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

// hooked is a shop that checks each webhook's signature and refuses every fifth.
type hooked struct {
	*httptest.Server
	mu     sync.Mutex
	calls  int
	orders map[string]map[string]int // order id -> webhook id -> calls
}

func hook(t *testing.T) *hooked {
	t.Helper()
	check, err := standardwebhooks.NewWebhook(webhookSecret)
	must(t, err)
	h := &hooked{orders: map[string]map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = check.Verify(body, r.Header)
		}
		var event struct {
			Data orderShown `json:"data"`
		}
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil {
			t.Errorf("webhook: %v", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls++
		if h.orders[event.Data.ID] == nil {
			h.orders[event.Data.ID] = map[string]int{}
		}
		h.orders[event.Data.ID][r.Header.Get("Webhook-Id")]++
		if h.calls%5 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hooked) seen() (orders int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.orders)
}

// sent returns the calls of each order by their webhook ids.
func (h *hooked) sent() map[string]map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.orders)
}

// stories reads the stream of events: what it tells of each order, repeats left out.
func (s *stack) stories(t *testing.T) map[string]string {
	t.Helper()
	js, err := jetstream.New(s.nats.Conn())
	must(t, err)
	events, err := js.Stream(t.Context(), "ORDERS")
	must(t, err)
	info, err := events.Info(t.Context())
	must(t, err)
	told, known := map[string]string{}, map[string]bool{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg, err := events.GetMsg(t.Context(), seq)
		must(t, err)
		var event struct {
			ID   string     `json:"id"`
			Data orderShown `json:"data"`
		}
		must(t, json.Unmarshal(msg.Data, &event))
		if !known[event.ID] {
			told[event.Data.ID] += strings.TrimPrefix(msg.Subject, "orders.") + " "
		}
		known[event.ID] = true
	}
	return told
}

// A thousand orders are sent to a shop that refuses now and then, and of the two order
// services that send them and tell of them one is killed on the way.
func TestEveryOrderReachesTheShopAlthoughAnOrderServiceIsKilled(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	for i, o := range s.orders { // others, that wait less for a call
		o.Kill()
		s.orders[i] = s.start(t, "order", "DOORBUSTER_TRUST_USER_HEADER=true", "DOORBUSTER_ACK_WAIT=3s",
			"DOORBUSTER_WEBHOOK_SECRETS="+webhookSecret, "DOORBUSTER_WEBHOOK_RETRY_BASE=100ms", "DOORBUSTER_WEBHOOK_TIMEOUT=1s")
	}
	shop := hook(t)
	id := harness.Name(t)
	now := time.Now().UTC()
	if status := s.call(t, "POST", "/admin/v1/sales", map[string]any{
		"id": id, "name": "A drop", "starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour),
		"items":      []map[string]any{{"sku": "A", "stock": 1000}},
		"fulfilment": map[string]any{"url": shop.URL, "trigger": "created"},
	}, nil); status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	if status := s.call(t, "POST", "/admin/v1/sales/"+id+"/approve", nil, nil); status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	reports := s.stormWhile(t, load.Config{SaleID: id, Users: 1200, Connections: 64, Timeout: time.Minute}, 100, func() {
		harness.Eventually(t, 30*time.Second, "the shop has seen a part of the orders", func() (bool, string) {
			n := shop.seen()
			return n > 100, fmt.Sprint(n)
		})
		s.orders[0].Kill()
	})
	harness.Eventually(t, 90*time.Second, "every order is fulfilled", func() (bool, string) {
		waiting := s.ordersOf(t, id, "pending_payment")
		return len(waiting) == 0 && len(s.ledgerOrders(t, id)) == 1000, fmt.Sprint(len(waiting))
	})
	s.requireClean(t, id)
	s.requireOrders(t, id, reports, 1000)

	again := 0
	for order, ids := range shop.sent() {
		if len(ids) != 1 {
			t.Errorf("order %s was sent with %d ids, want one", order, len(ids))
		}
		for _, n := range ids {
			again += n - 1
		}
	}
	if seen := shop.seen(); seen != 1000 || again < 150 {
		t.Errorf("the shop heard of %d orders, of %d calls once more", seen, again)
	}
	harness.Eventually(t, 30*time.Second, "every order's story is told", func() (bool, string) {
		told := s.stories(t)
		for order, story := range told {
			if story != "created fulfilled " {
				return false, order + ": " + story
			}
		}
		return len(told) == 1000, fmt.Sprint(len(told))
	})
}
