package order_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// counter is a desk with Redis and the HTTP for the owners of orders.
type counter struct {
	*desk
	redis  *harness.RedisServer
	store  *stock.Store
	back   *returns
	api    *order.API
	router *web.Router
	url    string
	number uint64 // of the last batch in Redis
}

// patient are settings of an API that finds an order by its signal only.
var patient = order.APIConfig{WaitMax: 30 * time.Second, PollMin: time.Hour, PollMax: time.Hour}

func openCounter(t testing.TB, cfg order.APIConfig) *counter {
	t.Helper()
	return openCounterOn(t, harness.SharedMariaDB(t), cfg)
}

func openCounterOn(t testing.TB, server *harness.MySQLServer, cfg order.APIConfig) *counter {
	t.Helper()
	c := &counter{desk: openDeskOn(t, server, 1000), redis: harness.Redis(t), back: &returns{}}
	client := redis.NewClient(&redis.Options{
		Addr: c.redis.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DialTimeout: time.Second,
	})
	t.Cleanup(func() { _ = client.Close() })
	c.store = stock.New(client)
	c.load()
	identity := get[web.Identity](t)(web.NewIdentity(t.Context(), web.IdentityOptions{TrustUserHeader: true}))
	cfg.Waiting = c.metrics.Waiting
	c.api = get[*order.API](t)(order.NewAPI(cfg, identity, c.ledger, c.store, c.back, c.log))
	c.router = web.NewRouter(telemetry.NewHTTPMetrics(prometheus.NewRegistry()), c.log)
	c.api.Mount(c.router)
	server2 := httptest.NewServer(c.router)
	t.Cleanup(server2.Close)
	c.url = server2.URL
	return c
}

// load restores the sale in Redis with these grants, as a reconciler does.
func (c *counter) load(grants ...sale.Grant) {
	c.t.Helper()
	c.loadWith(1000, grants...)
}

// loadWith is load with so much of A left.
func (c *counter) loadWith(left int64, grants ...sale.Grant) {
	c.t.Helper()
	ctx := c.t.Context()
	c.begin()
	era, err := stock.NewMinter(c.store).Era(ctx, c.sale.ID)
	must(c.t, err)
	restore := c.store.BeginRestore(c.sale.ID, 100)
	for i := range grants {
		must(c.t, restore.Grant(ctx, grants[i].OrderID, sale.AppendGrant(nil, &grants[i])))
		must(c.t, restore.Buyer(ctx, grants[i].User, grants[i].Units(), grants[i].OrderID))
	}
	must(c.t, restore.Commit(ctx, stock.Target{
		Era: era, Generation: c.fence.Generation, Fence: c.fence.Seq, Remaining: map[string]int64{"A": left, "B": -1},
	}))
}

// win makes a grant in Redis; it is pending.
func (c *counter) win(user string) sale.Grant {
	c.t.Helper()
	g := c.grant(user, "A", 1)
	c.number++
	decision := get[stock.Decision](c.t)(c.store.Grab(c.t.Context(), stock.Batch{
		SaleID: c.sale.ID, Process: "desk", Number: c.number, Asks: []stock.Ask{{Grant: &g, Record: sale.AppendGrant(nil, &g)}},
	}))
	if decision.Answers[0].Code != stock.CodeWon {
		c.t.Fatalf("the grab was answered %c", decision.Answers[0].Code)
	}
	return g
}

// acknowledge tells Redis that all batches are in the stream.
func (c *counter) acknowledge() {
	c.t.Helper()
	get[int64](c.t)(c.store.Trim(c.t.Context(), stock.Trim{SaleID: c.sale.ID, Process: "desk", Through: c.number, Durable: true}))
}

// write writes a grant's order, as a worker elsewhere does.
func (c *counter) write(grants ...sale.Grant) {
	c.t.Helper()
	get[ledger.Result](c.t)(c.ledger.Record(c.t.Context(), ledger.Batch{
		StreamID: 1, Messages: []ledger.Message{{Seq: 1, SaleID: c.sale.ID, Batch: sale.Batch{Grants: grants}}},
	}))
}

// answer is what a request was answered with.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

// ask sends a request of a user.
func (c *counter) ask(method, path, user string) answer {
	c.t.Helper()
	a, err := c.send(c.t.Context(), method, c.url+path, user)
	must(c.t, err)
	return a
}

// asked sends a request and returns at once; the answer comes by the channel.
func (c *counter) asked(method, path, user string) <-chan answer {
	c.t.Helper()
	answers := make(chan answer, 1)
	go func() {
		a, err := c.send(c.t.Context(), method, c.url+path, user)
		if err != nil {
			c.t.Errorf("%s %s: %v", method, path, err)
		}
		answers <- a
	}()
	return answers
}

func (c *counter) send(ctx context.Context, method, url, user string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return answer{}, err
	}
	if user != "" {
		request.Header.Set(web.UserHeader, user)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, header: response.Header}
	return a, json.Unmarshal(text, &a.body)
}

// require holds an answer against a status and members of its body.
func (a answer) require(t testing.TB, status int, members map[string]any) {
	t.Helper()
	if a.status != status {
		t.Fatalf("answered %d %v, want %d", a.status, a.body, status)
	}
	for name, want := range members {
		if got := a.body[name]; got != want {
			t.Errorf("%s is %v, want %v, in %v", name, got, want, a.body)
		}
	}
	wantType := "application/json"
	if status >= http.StatusBadRequest {
		wantType = "application/problem+json"
	}
	if got := a.header.Get("Content-Type"); got != wantType {
		t.Errorf("Content-Type is %s, want %s", got, wantType)
	}
}

func (a answer) requireRetryAfter(t testing.TB) {
	t.Helper()
	if a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %d %v", a.status, a.body)
	}
}
