package services_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

// pressAt grabs at one process and returns the status and the answer.
func pressAt(t *testing.T, at *service, saleID, user string, header ...string) (int, map[string]any) {
	t.Helper()
	h := http.Header{"X-User-Id": {user}, "Idempotency-Key": {"k"}}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	var body map[string]any
	status := request(t, "POST", at.url+"/v1/sales/"+saleID+"/grabs", h, nil, &body)
	return status, body
}

// What an operator says about the flow of grabs holds in every process, also in
// one that starts later; what he takes back leaves each process to its configuration.
func TestAChangedFlowControlHoldsInEveryProcessWithinASecond(t *testing.T) {
	s := startStack(t)
	id := s.openSale(t, 1000)
	users := 0
	requireSlows := func(process *service, what string, want bool) {
		t.Helper()
		harness.Eventually(t, time.Second, what, func() (bool, string) {
			users++
			user := fmt.Sprint("user-", users)
			pressAt(t, process, id, user)
			status, body := pressAt(t, process, id, user)
			return (status == http.StatusTooManyRequests && body["policy"] == "user") == want, fmt.Sprint(status, body)
		})
	}
	for _, g := range s.grabs {
		harness.Eventually(t, 10*time.Second, "the sale is known", func() (bool, string) {
			status, body := pressAt(t, g, id, "first")
			return status == http.StatusCreated, fmt.Sprint(status, body)
		})
	}
	var slowest time.Duration
	for round := range 6 {
		slowed := round%2 == 0
		change := map[string]any{"per_user": nil}
		if slowed {
			change["per_user"] = map[string]any{"rate": 0.001, "burst": 1}
		}
		start := time.Now()
		if status := s.call(t, "PUT", "/admin/v1/flow-control", change, nil); status != http.StatusOK {
			t.Fatalf("change the flow control: %d", status)
		}
		for i, g := range s.grabs {
			requireSlows(g, fmt.Sprintf("grab process %d obeys", i), slowed)
		}
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("in force in both processes within %s at most, the request and probing included", slowest)
	if slowest > time.Second {
		t.Errorf("the slowest change took %s", slowest)
	}
	s.call(t, "PUT", "/admin/v1/flow-control", map[string]any{"per_user": map[string]any{"rate": 0.001, "burst": 1}}, nil)
	requireSlows(s.start(t, "grab", "DOORBUSTER_TRUST_USER_HEADER=true"), "a process that starts later obeys", true)
	s.requireClean(t, id)
}

// Behind a trusted proxy a client's address is the one that the proxy names, and a
// gateway with a key grabs for many users at once; the books are right afterwards.
func TestProxiesAndGatewaysStandInFront(t *testing.T) {
	s := startStack(t)
	id := s.openSale(t, 50)
	const key = "the-key-of-the-gateway"
	front := s.start(t, "grab", "DOORBUSTER_TRUST_USER_HEADER=true", "DOORBUSTER_TRUSTED_PROXIES=127.0.0.0/8",
		"DOORBUSTER_IP_RATE=0.001", "DOORBUSTER_IP_BURST=1", "DOORBUSTER_GATEWAY_KEYS=another-key-of-a-gateway,"+key)
	tries := 0
	harness.Eventually(t, 10*time.Second, "ann buys", func() (bool, string) {
		tries++
		status, body := pressAt(t, front, id, "ann", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", tries))
		return status == http.StatusCreated, fmt.Sprint(status, body)
	})
	if status, body := pressAt(t, front, id, "bob", "X-Forwarded-For", "198.51.100.1"); status != http.StatusCreated {
		t.Fatalf("bob: %d %v", status, body)
	}
	for _, forged := range []string{"198.51.100.1", "6.6.6.6, 198.51.100.1", "6.6.6.6, 198.51.100.1:99, 127.0.0.3"} {
		if status, body := pressAt(t, front, id, "cat", "X-Forwarded-For", forged, "Forwarded", "for=6.6.6.6"); status != http.StatusTooManyRequests || body["policy"] != "ip" {
			t.Errorf("from %s: %d %v", forged, status, body)
		}
	}

	var grabs []map[string]any
	for i := range 100 {
		grabs = append(grabs, map[string]any{"user": fmt.Sprint("guest-", i), "idempotency_key": "k"})
	}
	var answer struct {
		Results []struct {
			Status  int    `json:"status"`
			Outcome string `json:"outcome"`
			OrderID string `json:"order_id"`
		} `json:"results"`
	}
	batches := front.url + "/v1/sales/" + id + "/grabs:batch"
	if status := request(t, "POST", batches, http.Header{"Authorization": {"Bearer the-key-of-nobody-at-all"}}, map[string]any{"grabs": grabs}, nil); status != http.StatusUnauthorized {
		t.Fatalf("without the key: %d", status)
	}
	if status := request(t, "POST", batches, http.Header{"Authorization": {"Bearer " + key}}, map[string]any{"grabs": grabs}, &answer); status != http.StatusOK {
		t.Fatalf("with the key: %d", status)
	}
	told := map[string]int{}
	for _, r := range answer.Results {
		told[r.Outcome]++
	}
	if told["won"] != 48 || told["sold_out"] != 52 {
		t.Errorf("the batch was told %v, want 48 won and 52 sold out", told)
	}
	s.requireClean(t, id)
	if sold, _ := s.sold(t, id); sold != 50 {
		t.Errorf("%d sold, want 50", sold)
	}
}
