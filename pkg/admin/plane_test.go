package admin_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	key      = "an-admin-key-for-tests"
	keyOfAnn = "an-admin-key-of-ann-s"
)

// wait is how long a test waits for something that is bound to happen.
const wait = 60 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plane is the admin service on real servers; reconciler, order worker and a
// grab process are started by the tests that need them.
type plane struct {
	t      testing.TB
	redis  *harness.RedisServer
	nats   *harness.NATSServer
	db     *sql.DB // looks past the ledger
	ledger *ledger.Ledger
	stock  *stock.Store
	stream *stream.Stream
	log    *slog.Logger
	url    string
	client *http.Client
}

func openPlane(t testing.TB, cfg admin.Config) *plane {
	t.Helper()
	p := &plane{t: t, redis: harness.Redis(t), nats: harness.NATS(t), log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	var err error
	p.db, err = sql.Open("mysql", dsn)
	must(t, err)
	t.Cleanup(func() { _ = p.db.Close() })
	p.ledger, err = ledger.Open(t.Context(), ledger.Config{DSN: dsn})
	must(t, err)
	t.Cleanup(func() { must(t, p.ledger.Close()) })
	must(t, p.ledger.Migrate(t.Context()))
	client := redis.NewClient(&redis.Options{
		Addr: p.redis.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	p.stock = stock.New(client)
	p.stream, err = stream.Open(stream.Config{URL: p.nats.URL(), Logger: p.log, RequestTimeout: time.Second})
	must(t, err)
	t.Cleanup(p.stream.Close)
	must(t, p.stream.AwaitTopology(t.Context()))
	p.serve(cfg)
	return p
}

// serve starts the admin service.
func (p *plane) serve(cfg admin.Config) {
	p.t.Helper()
	cfg.Callers = map[string]string{key: "operator", keyOfAnn: "ann"}
	service, err := admin.NewService(admin.ServiceConfig{
		Config: cfg, Ledger: p.ledger, Stock: p.stock, Stream: p.stream, Log: p.log,
	})
	must(p.t, err)
	router := web.NewRouter(telemetry.NewHTTPMetrics(prometheus.NewRegistry()), p.log)
	service.Mount(router)
	server := httptest.NewServer(router)
	p.run("admin service", service.Run)
	p.t.Cleanup(server.Close)
	p.url, p.client = server.URL, server.Client()
	harness.Eventually(p.t, wait, "the admin service is ready", func() (bool, string) {
		err := service.Ready(p.t.Context())
		return err == nil, fmt.Sprint(err)
	})
}

// run runs something until stop is called or the test ends.
func (p *plane) run(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			p.t.Errorf("%s: %v", what, err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	p.t.Cleanup(stop)
	return stop
}

// reconciler starts one.
func (p *plane) reconciler() (stop func()) {
	p.t.Helper()
	r, err := reconcile.New(reconcile.Config{RelayInterval: 100 * time.Millisecond}, p.stock, p.stream, p.ledger, nil, p.log)
	must(p.t, err)
	return p.run("reconciler", r.Run)
}

// worker starts an order worker.
func (p *plane) worker() (stop func()) {
	p.t.Helper()
	metrics := telemetry.NewOrderMetrics(prometheus.NewRegistry(), order.Tables, order.RetryReasons)
	w, err := order.NewWorker(order.WorkerConfig{}, p.ledger, p.stream, nil, metrics, p.log)
	must(p.t, err)
	return p.run("order worker", w.Run)
}

// shop starts a grab process that knows the sale.
func (p *plane) shop(saleID string) *grab.Engine {
	p.t.Helper()
	engine, err := grab.New(grab.Config{Process: grab.NewProcess()}, p.stock, p.stream, nil, p.log)
	must(p.t, err)
	watch := grab.Follow(engine, p.stream)
	unsubscribe, err := p.stream.SubscribeRestocked(engine.Restocked)
	must(p.t, err)
	p.t.Cleanup(unsubscribe)
	p.run("grab engine", engine.Run)
	p.run("catalogue watch", func(ctx context.Context) error { watch.Run(ctx); return nil })
	harness.Eventually(p.t, wait, "the grab process sells", func() (bool, string) {
		s, known := engine.Sale(saleID)
		return engine.Ready() && known && s.Status == sale.StatusApproved, fmt.Sprint(known)
	})
	return engine
}

// grab wins one unit for a user, or fails the test.
func (p *plane) grab(engine *grab.Engine, saleID, user string) string {
	p.t.Helper()
	a, err := engine.Grab(p.t.Context(), grab.Request{SaleID: saleID, User: user, Key: "k", Lines: []sale.Line{{SKU: "A", Quantity: 1}}})
	must(p.t, err)
	if a.Outcome != sale.Won {
		p.t.Fatalf("grab of %s: %+v", user, a)
	}
	return a.OrderID
}

// grabMore is grab after stock was added: the engine still has to hear that its sold-out mark is
// void. That it hears within a fifth of a second is tested with the real services.
func (p *plane) grabMore(engine *grab.Engine, saleID, user string) {
	p.t.Helper()
	harness.Eventually(p.t, wait, "what was added is sold to "+user, func() (bool, string) {
		a, err := engine.Grab(p.t.Context(), grab.Request{SaleID: saleID, User: user, Key: "k", Lines: []sale.Line{{SKU: "A", Quantity: 1}}})
		must(p.t, err)
		if a.Outcome != sale.Won && a.Outcome != sale.SoldOut {
			p.t.Fatalf("grab of %s: %+v", user, a)
		}
		return a.Outcome == sale.Won, string(a.Outcome)
	})
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// call sends a request; body is JSON text, or anything to be made JSON, or nil.
// header is more of the request's header, as name, value, ...
func (p *plane) call(method, path string, body any, header ...string) reply {
	p.t.Helper()
	var text []byte
	switch body := body.(type) {
	case nil:
	case string:
		text = []byte(body)
	default:
		var err error
		text, err = json.Marshal(body)
		must(p.t, err)
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, bytes.NewReader(text))
	must(p.t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := p.client.Do(r)
	must(p.t, err)
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	must(p.t, err)
	out := reply{status: response.StatusCode, header: response.Header, text: string(got)}
	if err := json.Unmarshal(got, &out.body); err != nil {
		p.t.Errorf("%s %s: %d: body %q is no JSON object", method, path, out.status, got)
	}
	return out
}

// ok is call for what must succeed with a status.
func (p *plane) ok(status int, method, path string, body any, header ...string) reply {
	p.t.Helper()
	r := p.call(method, path, body, header...)
	if r.status != status {
		p.t.Fatalf("%s %s: %d %s, want %d", method, path, r.status, r.text, status)
	}
	return r
}

// refused is call for what must be refused with a status and a code.
func (p *plane) refused(status int, code, method, path string, body any, header ...string) reply {
	p.t.Helper()
	r := p.call(method, path, body, header...)
	if r.status != status || r.body["code"] != code || r.header.Get("Content-Type") != "application/problem+json" {
		p.t.Errorf("%s %s: %d %s, want %d %s", method, path, r.status, r.text, status, code)
	}
	return r
}

// has fails the test unless the body has these members: name, value, ...; numbers are ints.
func (r reply) has(t testing.TB, members ...any) {
	t.Helper()
	for i := 0; i < len(members); i += 2 {
		name, want := members[i].(string), members[i+1]
		if n, ok := want.(int); ok {
			want = float64(n)
		}
		if got, present := r.body[name]; !present || got != want {
			t.Errorf("%s is %v, want %v in %s", name, got, want, r.text)
		}
	}
}

// list is a member that is a list of objects.
func (r reply) list(t testing.TB, name string) []map[string]any {
	t.Helper()
	values, ok := r.body[name].([]any)
	if !ok {
		t.Fatalf("%s is no list in %s", name, r.text)
	}
	out := make([]map[string]any, len(values))
	for i, value := range values {
		out[i] = value.(map[string]any)
	}
	return out
}

// item is the first item of a sale.
func (r reply) item(t testing.TB) reply {
	t.Helper()
	return reply{body: r.list(t, "items")[0], text: r.text}
}

// draft is the body of a sale of 10 of A that is open now; more replaces members.
func draft(id string, more ...any) map[string]any {
	now := time.Now().UTC().Truncate(time.Second)
	body := map[string]any{
		"id": id, "name": "A drop", "starts_at": now.Add(-time.Hour), "ends_at": now.Add(time.Hour),
		"items": []any{map[string]any{"sku": "A", "stock": 10, "price_cents": 999}},
	}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// without is a copy of a body without a member.
func without(body map[string]any, name string) map[string]any {
	body = maps.Clone(body)
	delete(body, name)
	return body
}

func salePath(id string, more ...string) string {
	return "/admin/v1/sales/" + id + strings.Join(append([]string{""}, more...), "/")
}

// open creates and approves a sale, which is then loaded, and returns its path.
func (p *plane) open(id string, more ...any) string {
	p.t.Helper()
	p.ok(http.StatusCreated, "POST", "/admin/v1/sales", draft(id, more...))
	p.ok(http.StatusOK, "POST", salePath(id, "approve"), nil).has(p.t, "status", "approved", "state", "loaded")
	return salePath(id)
}

// checksums are of the tables that decisions change; progress is what the worker
// writes by itself.
func (p *plane) checksums() string {
	p.t.Helper()
	rows, err := p.db.QueryContext(p.t.Context(), "CHECKSUM TABLE sales, items, orders, flows, givebacks, dead_letters")
	must(p.t, err)
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var table, sum string
		must(p.t, rows.Scan(&table, &sum))
		fmt.Fprintln(&all, table, sum)
	}
	must(p.t, rows.Err())
	return all.String()
}

// requireSound waits until the sale is at rest and holds that no guarantee is broken.
func (p *plane) requireSound(saleID string) {
	p.t.Helper()
	harness.Eventually(p.t, wait, "the sale is at rest", func() (bool, string) {
		r := p.ok(http.StatusOK, "GET", salePath(saleID, "verify"), nil)
		if r.body["ok"] != true {
			p.t.Fatalf("a guarantee is broken: %s", r.text)
		}
		return r.body["at_rest"] == true, r.text
	})
}
