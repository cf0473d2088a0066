// Package services_test holds the promises of the whole product: real service
// processes on real servers, with real clients, and everything killed in turn.
package services_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

const (
	adminKey      = "an-admin-key-for-tests"
	webhookSecret = "whsec_dGhlIHdlYmhvb2sgc2VjcmV0IG9mIHRlc3Rz"
)

// stack is Doorbuster as it runs in production: one process per service, two of
// those that may be many.
type stack struct {
	redis      *harness.RedisServer
	nats       *harness.NATSServer
	mysql      *harness.MySQLServer
	env        []string
	grabs      []*service
	orders     []*service
	reconciler *service
	admin      *service
}

// service is one process and its address.
type service struct {
	*harness.ChildProcess
	url string
}

// startStack starts a stack for one test. What mostly waits in such a test runs beside
// others; what is timed, or loads both cores by itself, does not.
func startStack(t *testing.T, redisOptions ...harness.RedisOption) *stack {
	t.Helper()
	s := &stack{redis: harness.Redis(t, redisOptions...), nats: harness.NATS(t), mysql: harness.MariaDB(t)}
	s.env = []string{
		"DOORBUSTER_REDIS=" + s.redis.URL(),
		"DOORBUSTER_NATS=" + s.nats.URL(),
		"DOORBUSTER_MYSQL=" + s.mysql.NewDatabase(t),
		"DOORBUSTER_LOG_FORMAT=text",
	}
	s.admin = s.start(t, "admin", "DOORBUSTER_ADMIN_KEY="+adminKey)
	s.reconciler = s.start(t, "reconciler", "DOORBUSTER_RECONCILE_LEASE_TTL=3s")
	for range 2 {
		s.orders = append(s.orders, s.start(t, "order", "DOORBUSTER_TRUST_USER_HEADER=true", "DOORBUSTER_ACK_WAIT=3s",
			"DOORBUSTER_WEBHOOK_SECRETS="+webhookSecret, "DOORBUSTER_WEBHOOK_RETRY_BASE=100ms"))
		s.grabs = append(s.grabs, s.start(t, "grab", "DOORBUSTER_TRUST_USER_HEADER=true"))
	}
	return s
}

// start starts one more process of a service and waits until it is ready.
func (s *stack) start(t *testing.T, name string, env ...string) *service {
	t.Helper()
	addr := harness.Addr(t)
	process := harness.Process(t, harness.Binary(t, "services/"+name), []string{"--listen", addr}, append(env, s.env...))
	started := &service{ChildProcess: process, url: "http://" + addr}
	harness.Eventually(t, 30*time.Second, name+" is ready", func() (bool, string) {
		response, err := http.Get(started.url + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode == http.StatusOK, string(body)
	})
	return started
}

// call sends an admin request and decodes the answer into out, if it is not nil.
func (s *stack) call(t *testing.T, method, path string, body, out any) int {
	t.Helper()
	return request(t, method, s.admin.url+path, http.Header{"Authorization": {"Bearer " + adminKey}}, body, out)
}

func request(t *testing.T, method, url string, header http.Header, body, out any) int {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if body == nil {
		encoded = nil
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s %s: %d %s: %v", method, url, response.StatusCode, text, err)
		}
	}
	return response.StatusCode
}

// openSale creates and approves a sale of one item.
func (s *stack) openSale(t *testing.T, units int64) string {
	t.Helper()
	id := harness.Name(t)
	now := time.Now().UTC()
	status := s.call(t, "POST", "/admin/v1/sales", map[string]any{
		"id": id, "name": "A drop", "starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour),
		"items": []map[string]any{{"sku": "A", "stock": units, "price_cents": 999}},
	}, nil)
	if status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	if status := s.call(t, "POST", "/admin/v1/sales/"+id+"/approve", nil, nil); status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	return id
}

// storm lets the same users grab at every grab process at once, each side with
// its own keys or with the same, and returns what each side was told.
func (s *stack) storm(t *testing.T, cfg load.Config) []load.Report {
	t.Helper()
	reports := make([]load.Report, len(s.grabs))
	var wg sync.WaitGroup
	for i, g := range s.grabs {
		wg.Go(func() {
			side := cfg
			side.URL = g.url
			report, err := load.Run(t.Context(), side)
			if err != nil {
				t.Errorf("load on grab process %d: %v", i, err)
			}
			reports[i] = report
		})
	}
	wg.Wait()
	return reports
}

// verification is what GET .../verify says.
type verification struct {
	OK     bool     `json:"ok"`
	AtRest bool     `json:"at_rest"`
	Moving []string `json:"moving"`
	Loaded bool     `json:"loaded"`
	Checks []struct {
		Name   string `json:"name"`
		OK     bool   `json:"ok"`
		Detail string `json:"detail"`
	} `json:"checks"`
}

func (v verification) String() string {
	var failed []string
	for _, c := range v.Checks {
		if !c.OK {
			failed = append(failed, c.Name+": "+c.Detail)
		}
	}
	return fmt.Sprintf("loaded %v, at rest %v (%s), violations: %s", v.Loaded, v.AtRest, strings.Join(v.Moving, "; "), strings.Join(failed, "; "))
}

// requireClean waits until the sale is at rest and holds that no invariant is
// violated, then or on the way.
func (s *stack) requireClean(t *testing.T, saleID string) {
	t.Helper()
	harness.Eventually(t, 60*time.Second, "the sale is at rest and verify is clean", func() (bool, string) {
		var v verification
		if status := s.call(t, "GET", "/admin/v1/sales/"+saleID+"/verify", nil, &v); status != http.StatusOK {
			return false, fmt.Sprint("verify: ", status)
		}
		if v.AtRest && v.Loaded && !v.OK {
			t.Fatalf("violated: %s", v)
		}
		return v.AtRest && v.Loaded && v.OK, v.String()
	})
}

// sold is how many units of the sale's item are in the ledger.
func (s *stack) sold(t *testing.T, saleID string) (sold int64, remaining *int64) {
	t.Helper()
	var shown struct {
		Items []struct {
			Sold      int64  `json:"sold"`
			Remaining *int64 `json:"remaining"`
		} `json:"items"`
	}
	if status := s.call(t, "GET", "/admin/v1/sales/"+saleID, nil, &shown); status != http.StatusOK || len(shown.Items) != 1 {
		t.Fatalf("show: %d %+v", status, shown)
	}
	return shown.Items[0].Sold, shown.Items[0].Remaining
}

// requireOrders holds that everyone who was told "won" finds the order, once per
// user, and that the ledger has exactly want orders of as many users.
func (s *stack) requireOrders(t *testing.T, saleID string, reports []load.Report, want int) {
	t.Helper()
	orderOf := map[string]string{} // user -> order
	for _, report := range reports {
		if report.Contradictions > 0 {
			t.Errorf("clients were told contradictions: %v", report.Examples)
		}
		for _, w := range report.Winners {
			if before, ok := orderOf[w.User]; ok && before != w.OrderID {
				t.Errorf("%s was told of two orders: %s and %s", w.User, before, w.OrderID)
			}
			orderOf[w.User] = w.OrderID
		}
	}
	inLedger := s.ledgerOrders(t, saleID)
	for user, order := range orderOf {
		if inLedger[order] != user {
			t.Errorf("%s was told won with order %s; the ledger has it for %q", user, order, inLedger[order])
		}
	}
	users := map[string]bool{}
	for _, user := range inLedger {
		users[user] = true
	}
	if len(inLedger) != want || len(users) != want {
		t.Errorf("%d orders of %d users, want %d of as many", len(inLedger), len(users), want)
	}
	t.Logf("%d users were told won, %d orders", len(orderOf), len(inLedger))
}

// ledgerOrders pages through the sale's orders: order id -> user.
func (s *stack) ledgerOrders(t *testing.T, saleID string) map[string]string {
	t.Helper()
	found := map[string]string{}
	path := "/admin/v1/sales/" + saleID + "/orders?limit=200"
	for next := path; ; {
		var page struct {
			Orders []struct {
				ID   string `json:"order_id"`
				User string `json:"user"`
			} `json:"orders"`
			Next string `json:"next_cursor"`
		}
		if status := s.call(t, "GET", next, nil, &page); status != http.StatusOK {
			t.Fatalf("orders: %d", status)
		}
		for _, o := range page.Orders {
			found[o.ID] = o.User
		}
		if page.Next == "" {
			return found
		}
		next = path + "&cursor=" + page.Next
	}
}
