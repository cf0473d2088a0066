package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/web"
)

func TestMain(m *testing.M) { harness.Main(m) }

const wait = 60 * time.Second

// ackWait is how long what a killed service had in hand stays with it.
const ackWait = 2 * time.Second

// shop is the order service and what it needs.
type shop struct {
	t     *testing.T
	dsn   string
	redis *harness.RedisServer
	nats  *harness.NATSServer
	sale  sale.Sale
	sold  []sale.Grant
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service starts the service as a process and returns its address.
func (s *shop) service() (*harness.ChildProcess, string) {
	s.t.Helper()
	p := harness.Process(s.t, harness.Binary(s.t, "services/order"), []string{
		"--listen=127.0.0.1:0", "--trust-user-header", "--redis=" + s.redis.URL(), "--nats=" + s.nats.URL(),
		"--fetch-max=4", "--grants-per-tx=100", "--ack-wait=" + ackWait.String(),
	}, []string{"DOORBUSTER_MYSQL=" + s.dsn})
	return p, s.address(p)
}

var listening = regexp.MustCompile(`"msg":"listening".*"address":"([^"]+)"`)

func (s *shop) address(p *harness.ChildProcess) string {
	s.t.Helper()
	var found []string
	harness.Eventually(s.t, wait, "the service listens", func() (bool, string) {
		found = listening.FindStringSubmatch(p.Stderr())
		return found != nil, p.Output()
	})
	return "http://" + found[1]
}

func TestServiceKilledInTheMiddleOwesNobodyAnOrder(t *testing.T) {
	s := &shop{t: t, dsn: harness.SharedMariaDB(t).NewDatabase(t), redis: harness.Redis(t), nats: harness.NATS(t)}
	process, address := s.service() // makes tables and streams
	harness.Eventually(t, wait, "the service is ready", func() (bool, string) {
		status, body := fetch(t, address+"/readyz", "")
		return status == http.StatusOK, fmt.Sprint(status, body)
	})
	s.open(4000)
	s.sell(2000)
	db, err := sql.Open("mysql", s.dsn)
	must(t, err)
	defer db.Close()
	harness.Eventually(t, wait, "some orders are written", func() (bool, string) {
		n := count(t, db, "SELECT COUNT(*) FROM orders")
		return n > 0, fmt.Sprint(n)
	})
	process.Kill()
	last := s.sell(2000)

	process, address = s.service()
	harness.Eventually(t, wait, "all of the stream is written", func() (bool, string) {
		n := count(t, db, "SELECT CASE WHEN COUNT(*) = 1 THEN MAX(last_seq) ELSE 0 END FROM progress")
		return n == int64(last), fmt.Sprint(n)
	})
	if n := count(t, db, "SELECT COUNT(*) FROM orders WHERE status = 'pending_payment'"); n != int64(len(s.sold)) {
		t.Errorf("%d orders for %d grants", n, len(s.sold))
	}
	if n := count(t, db, "SELECT sold FROM items"); n != int64(len(s.sold)) {
		t.Errorf("%d units sold for %d grants", n, len(s.sold))
	}
	g := s.sold[len(s.sold)-1]
	status, order := fetch(t, address+"/v1/orders/"+g.OrderID+"?wait=5s", g.User)
	if status != http.StatusOK || order["status"] != "pending_payment" {
		t.Errorf("order is answered %d %v", status, order)
	}
	process.Terminate()
	if code := process.Wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, process.Output())
	}
}

// open makes the sale.
func (s *shop) open(units int64) {
	s.t.Helper()
	l, err := ledger.Open(s.t.Context(), ledger.Config{DSN: s.dsn})
	must(s.t, err)
	defer l.Close()
	now := time.Now()
	s.sale, err = l.CreateSale(s.t.Context(), sale.Sale{
		ID: harness.Name(s.t), Name: "test", Status: sale.StatusApproved, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		PaymentWindow: sale.Duration(time.Hour), Timezone: "UTC", Items: []sale.Item{{SKU: "A", Stock: units}},
	})
	must(s.t, err)
}

// sell puts grants of one unit each into the stream, 50 in a batch, in a new
// generation. It returns the stream's last sequence.
func (s *shop) sell(n int) (last uint64) {
	s.t.Helper()
	ctx := s.t.Context()
	str, err := stream.Open(stream.Config{URL: s.nats.URL(), AckWait: ackWait, Logger: slog.New(slog.DiscardHandler)})
	must(s.t, err)
	defer str.Close()
	must(s.t, str.AwaitTopology(ctx))
	fence, err := str.BeginGeneration(ctx, s.sale.ID, 1)
	must(s.t, err)
	for number := 1; number <= n/50; number++ {
		batch := sale.Batch{BatchHead: sale.BatchHead{
			Generation: fence.Generation, Fence: fence.Seq, Number: uint64(number), Process: "p",
		}}
		for range 50 {
			batch.Grants = append(batch.Grants, s.grant(fmt.Sprint("user-", len(s.sold))))
		}
		last, err = str.Publish(ctx, s.sale.ID, batch.BatchHead, sale.EncodeBatch(batch))
		must(s.t, err)
	}
	return last
}

func (s *shop) grant(user string) sale.Grant {
	now := time.Now()
	g := sale.Grant{
		Kind: sale.GrantGrab, OrderID: sale.OrderID(s.sale.ID, user, "k"), User: user, Key: "k", At: now, ExpiresAt: now.Add(time.Hour),
		Lines: []sale.Line{{SKU: "A", Quantity: 1}},
	}
	s.sold = append(s.sold, g)
	return g
}

func count(t *testing.T, db *sql.DB, query string) int64 {
	t.Helper()
	var n int64
	must(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// fetch asks as a user and returns what was answered.
func fetch(t *testing.T, url, user string) (int, map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	request.Header.Set(web.UserHeader, user)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	var body map[string]any
	must(t, json.NewDecoder(response.Body).Decode(&body))
	return response.StatusCode, body
}
