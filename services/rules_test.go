package services_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"context"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

// shopSystem is the shop's own system: it takes every order but those of one user.
type shopSystem struct {
	*httptest.Server
	mu    sync.Mutex
	taken map[string]string // order id -> user
}

func startShop(t *testing.T, refused string) *shopSystem {
	t.Helper()
	s := &shopSystem{taken: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Data struct {
				OrderID string `json:"order_id"`
				User    string `json:"user"`
			} `json:"data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil || event.Data.User == refused {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken[event.Data.OrderID] = event.Data.User
	}))
	t.Cleanup(s.Close)
	return s
}

// grabbed is the answer to a grab, as far as these tests look.
type grabbed struct {
	Outcome string `json:"outcome"`
	OrderID string `json:"order_id"`
	Limit   string `json:"limit"`
}

func grabAs(ctx context.Context, process *service, saleID, user, key string) (got grabbed, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, process.url+"/v1/sales/"+saleID+"/grabs", nil)
	if err != nil {
		return got, err
	}
	r.Header = http.Header{"X-User-Id": {user}, "Idempotency-Key": {key}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return got, err
	}
	defer func() { _ = response.Body.Close() }()
	return got, json.NewDecoder(response.Body).Decode(&got)
}

// flowLine is one line of the log of stock and counters.
type flowLine struct {
	SKU     string `json:"sku"`
	Counter string `json:"counter"`
	Kind    string `json:"kind"`
	OrderID string `json:"order_id"`
	User    string `json:"user"`
	Before  int64  `json:"before"`
	Step    int64  `json:"step"`
	After   int64  `json:"after"`
}

func (s *stack) flows(t *testing.T, saleID string) []flowLine {
	t.Helper()
	var all []flowLine
	path := "/admin/v1/sales/" + saleID + "/flows?limit=200"
	for next := path; ; {
		var page struct {
			Flows []flowLine `json:"flows"`
			Next  string     `json:"next_cursor"`
		}
		if status := s.call(t, "GET", next, nil, &page); status != http.StatusOK {
			t.Fatalf("flows: %d", status)
		}
		all = append(all, page.Flows...)
		if page.Next == "" {
			return all
		}
		next = path + "&cursor=" + page.Next
	}
}

// Ten in all, three a month, two a user, and one user whose orders the shop never
// takes: three units stay sold, none of them to that user, and the log tells of
// everything that was taken and given back.
func TestThreeOfTenAMonthAndNoneToWhomTheShopRefuses(t *testing.T) {
	s := startStack(t)
	shop := startShop(t, "unlucky")
	id := harness.Name(t)
	now := time.Now().UTC()
	if status := s.call(t, "POST", "/admin/v1/sales", map[string]any{
		"id": id, "name": "The example", "starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour), "per_user_limit": 2,
		"items": []map[string]any{{"sku": "A", "stock": 10, "price_cents": 100}},
		"limits": []map[string]any{
			{"scope": "sale", "window": "sale", "max": 10}, {"scope": "sale", "window": "month", "max": 3},
		},
		"fulfilment": map[string]any{"url": shop.URL, "trigger": "created", "give_up_after": "1s", "on_failure": "rollback"},
	}, nil); status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	if status := s.call(t, "POST", "/admin/v1/sales/"+id+"/approve", nil, nil); status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}

	// The unlucky user comes first, and then comes again and again with all the others.
	for n := range 2 {
		if got, err := grabAs(t.Context(), s.grabs[0], id, "unlucky", fmt.Sprint("first", n)); err != nil || got.Outcome != "won" {
			t.Fatalf("the first grab was answered %+v, %v", got, err)
		}
	}
	stop := s.demand(t, id, []string{"unlucky", "ann", "bob", "cid", "dan"})
	kept := func() map[string]int {
		users := map[string]int{}
		for _, order := range s.orderList(t, id) {
			if order.Status == "fulfilled" {
				users[order.User]++
			}
		}
		return users
	}
	harness.Eventually(t, 60*time.Second, "three units stay sold", func() (bool, string) {
		sold, users := 0, kept()
		for _, n := range users {
			sold += n
		}
		return sold == 3, fmt.Sprint(users)
	})
	stop()
	harness.Eventually(t, 30*time.Second, "no order waits for the shop", func() (bool, string) {
		for _, order := range s.orderList(t, id) {
			if order.Status != "fulfilled" && order.Status != "rejected" {
				return false, fmt.Sprint(order)
			}
		}
		return true, ""
	})
	s.requireClean(t, id)
	for user, n := range kept() {
		if user == "unlucky" || n > 2 {
			t.Errorf("%s keeps %d", user, n)
		}
	}
	s.requireLogOf(t, id)
}

// demand lets users grab at both processes until stop is called.
func (s *stack) demand(t *testing.T, id string, users []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, user := range users {
		for p, process := range s.grabs {
			running.Go(func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for n := 0; ctx.Err() == nil; n++ {
					got, err := grabAs(t.Context(), process, id, user, fmt.Sprintf("%d-%d", p, n))
					if err != nil {
						t.Errorf("grab: %v", err)
						return
					}
					if got.Outcome == "limit_exceeded" && got.Limit != "per_user_limit" && got.Limit != "sale_month" {
						t.Errorf("%s was refused by %s", user, got.Limit)
					}
					select {
					case <-tick.C:
					case <-ctx.Done():
					}
				}
			})
		}
	}
	return func() { cancel(); running.Wait() }
}

type orderShown struct {
	ID     string `json:"order_id"`
	User   string `json:"user"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

func (s *stack) orderList(t *testing.T, saleID string) []orderShown {
	t.Helper()
	var page struct {
		Orders []orderShown `json:"orders"`
	}
	if status := s.call(t, "GET", "/admin/v1/sales/"+saleID+"/orders?limit=200", nil, &page); status != http.StatusOK {
		t.Fatalf("orders: %d", status)
	}
	return page.Orders
}

// requireLogOf holds that the log shows each order's take of the stock and of both
// counters, and for each rejected one the way back, in chains without a gap.
func (s *stack) requireLogOf(t *testing.T, id string) {
	t.Helper()
	taken, back := map[string]int{}, map[string]int{}
	last := map[string]int64{}
	for _, f := range s.flows(t, id) {
		if f.SKU+f.Counter == "" || f.After != f.Before+f.Step || f.Step == 0 {
			t.Errorf("line %+v", f)
		}
		if after, known := last[f.SKU+f.Counter]; known && after != f.Before {
			t.Errorf("line %+v does not follow %d", f, after)
		}
		last[f.SKU+f.Counter] = f.After
		if f.Kind == "grab" {
			taken[f.OrderID]++
		} else {
			back[f.OrderID]++
		}
	}
	const perOrder = 3 // the stock, the limit of the sale, the limit of the month
	rejected := 0
	for _, o := range s.orderList(t, id) {
		want := 0
		if o.Status == "rejected" {
			rejected++
			want = perOrder
			if o.User != "unlucky" || o.Reason != "fulfilment_failed" {
				t.Errorf("order %+v was rejected", o)
			}
		}
		if taken[o.ID] != perOrder || back[o.ID] != want {
			t.Errorf("the log has %d lines of what order %+v took, %d of what it gave back; want %d and %d", taken[o.ID], o, back[o.ID], perOrder, want)
		}
	}
	if rejected < 2 {
		t.Errorf("%d orders were rolled back, want at least the first 2", rejected)
	}
	for counter, used := range last {
		if want := map[bool]int64{true: 7, false: 3}[counter == "A"]; used != want {
			t.Errorf("%s ends at %d, want %d", counter, used, want)
		}
	}
}
