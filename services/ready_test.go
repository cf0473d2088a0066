package services_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

// health is what /readyz says.
type health struct {
	Status       string `json:"status"`
	Dependencies []struct {
		Name     string `json:"name"`
		OK       bool   `json:"ok"`
		Required *bool  `json:"required"`
	} `json:"dependencies"`
}

// of says of a dependency whether it answers and whether it is required.
func (h *health) of(name string) (answers, required bool) {
	for _, d := range h.Dependencies {
		if d.Name == name {
			return d.OK, d.Required == nil || *d.Required
		}
	}
	return false, false
}

// requireWithoutRedis waits until /readyz has this status, and says that Redis is away, and required or not.
func (s *service) requireWithoutRedis(t *testing.T, name string, status int, required bool) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, fmt.Sprintf("%s without Redis says %d", name, status), func() (bool, string) {
		var h health
		got := request(t, http.MethodGet, s.url+"/readyz", nil, nil, &h)
		answers, isRequired := h.of("redis")
		return got == status && !answers && isRequired == required, fmt.Sprintf("%d %+v", got, h)
	})
}

// Everything that MySQL decides goes on without Redis, so a balancer must not take away who does it.
func TestOrdersAndSalesAreManagedWithoutRedis(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.openSale(t, 10)
	user := http.Header{"X-User-Id": {"ann"}}
	var won struct {
		OrderID string `json:"order_id"`
	}
	harness.Eventually(t, 30*time.Second, "somebody wins", func() (bool, string) {
		status := request(t, http.MethodPost, s.grabs[0].url+"/v1/sales/"+id+"/grabs", user, nil, &won)
		return status == http.StatusCreated, fmt.Sprint(status)
	})
	order := "/v1/orders/" + won.OrderID
	if status := request(t, http.MethodGet, s.orders[0].url+order+"?wait=10s", user, nil, nil); status != http.StatusOK {
		t.Fatalf("the order: %d", status)
	}
	s.redis.Kill()
	s.admin.requireWithoutRedis(t, "admin", http.StatusOK, false)
	s.orders[0].requireWithoutRedis(t, "order", http.StatusOK, false)
	s.grabs[0].requireWithoutRedis(t, "grab", http.StatusServiceUnavailable, true)
	s.reconciler.requireWithoutRedis(t, "reconciler", http.StatusServiceUnavailable, true)

	s.admin.Terminate()
	s.orders[0].Terminate()
	s.admin = s.start(t, "admin", "DOORBUSTER_ADMIN_KEY="+adminKey) // they start without it, too
	late := s.start(t, "order", "DOORBUSTER_TRUST_USER_HEADER=true")
	for _, do := range []struct {
		method, path string
		body         any
	}{
		{http.MethodGet, "", nil},
		{http.MethodPost, "/items/A/adjust", map[string]any{"delta": 5, "reason": "found more"}},
		{http.MethodPost, "/pause", nil},
		{http.MethodPost, "/resume", nil},
	} {
		if status := s.call(t, do.method, "/admin/v1/sales/"+id+do.path, do.body, nil); status != http.StatusOK {
			t.Errorf("%s %s without Redis: %d", do.method, do.path, status)
		}
	}
	if status := s.call(t, http.MethodPost, "/admin/v1/orders/"+won.OrderID+"/pay", nil, nil); status != http.StatusOK {
		t.Errorf("pay without Redis: %d", status)
	}
	var seen struct {
		Status string `json:"status"`
	}
	if status := request(t, http.MethodGet, late.url+order, user, nil, &seen); status != http.StatusOK || seen.Status != "paid" {
		t.Errorf("the order without Redis: %d %+v", status, seen)
	}
	if status := s.call(t, http.MethodPost, "/admin/v1/orders/"+won.OrderID+"/cancel", map[string]any{"reason": "asked for it"}, nil); status != http.StatusOK {
		t.Errorf("cancel without Redis: %d", status)
	}
}

var readyLine = regexp.MustCompile(`(?m)^.*level=INFO msg=ready .*$`)

func TestAServiceWhoseBackendsAreAwaitedTellsClientsToComeAgain(t *testing.T) {
	t.Parallel()
	redis, broker := harness.Redis(t), harness.NATS(t)
	broker.Stop()
	addr := harness.Addr(t)
	s := &service{url: "http://" + addr, ChildProcess: harness.Process(t, harness.Binary(t, "services/grab"), []string{"--listen", addr}, []string{
		"DOORBUSTER_REDIS=" + redis.URL(), "DOORBUSTER_NATS=" + broker.URL(), "DOORBUSTER_TRUST_USER_HEADER=true", "DOORBUSTER_LOG_FORMAT=text",
	})}
	harness.Eventually(t, 30*time.Second, "it listens", func() (bool, string) {
		return strings.Contains(s.Stderr(), "msg=listening"), s.Output()
	})
	grabs := s.url + "/v1/sales/a-sale/grabs"
	user := http.Header{"X-User-Id": {"ann"}}
	var problem struct {
		Code string `json:"code"`
	}
	if status := request(t, http.MethodPost, grabs, user, nil, &problem); status != http.StatusServiceUnavailable || problem.Code != "unavailable" {
		t.Errorf("while it waits for NATS: %d %+v", status, problem)
	}
	if readyLine.MatchString(s.Stderr()) {
		t.Errorf("it is said to be ready without NATS:\n%s", s.Output())
	}
	broker.Start()
	var statuses []int
	harness.Eventually(t, 30*time.Second, "it knows that there is no such sale", func() (bool, string) {
		status := request(t, http.MethodPost, grabs, user, nil, nil)
		statuses = append(statuses, status)
		return status == http.StatusNotFound, fmt.Sprint(statuses)
	})
	if slices.ContainsFunc(statuses[:len(statuses)-1], func(status int) bool { return status != http.StatusServiceUnavailable }) {
		t.Errorf("on the way it said %v", statuses)
	}
	harness.Eventually(t, 10*time.Second, "the log says that it is ready", func() (bool, string) {
		return len(readyLine.FindAllString(s.Stderr(), -1)) == 1, s.Output()
	})
}

func TestAServiceLeavesReadyzBeforeItClosesItsListener(t *testing.T) {
	t.Parallel()
	redis, broker := harness.Redis(t), harness.NATS(t)
	addr := harness.Addr(t)
	const delay = 5 * time.Second
	s := &service{url: "http://" + addr, ChildProcess: harness.Process(t, harness.Binary(t, "services/grab"),
		[]string{"--listen", addr, "--drain-delay", delay.String()}, []string{
			"DOORBUSTER_REDIS=" + redis.URL(), "DOORBUSTER_NATS=" + broker.URL(), "DOORBUSTER_TRUST_USER_HEADER=true", "DOORBUSTER_LOG_FORMAT=text",
		})}
	harness.Eventually(t, 30*time.Second, "it is ready", func() (bool, string) { return readyLine.MatchString(s.Stderr()), s.Output() })
	begin := time.Now()
	s.Terminate()
	harness.Eventually(t, delay, "readyz says that it is draining", func() (bool, string) {
		var h health
		status := request(t, http.MethodGet, s.url+"/readyz", nil, nil, &h)
		return status == http.StatusServiceUnavailable && h.Status == "draining", fmt.Sprint(status, h)
	})
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.Output())
	}
	if took := time.Since(begin); took < delay {
		t.Errorf("it ended after %s, want %s at least", took, delay)
	}
}
