package grab_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/redis/go-redis/v9"
)

// benchConnections is how many clients press "buy" at the same time.
const benchConnections = 512

// benchRound is how many grabs one side takes before the other has its turn.
const benchRound = 40_000

// BenchmarkAccept compares the accept path (HTTP to "won" after the fsync of
// nats-server) with what one would write first: a plain handler that calls one
// script per request and keeps nothing. Both run in turn on the same servers, 512
// connections each, every round on a sale of its own; ratio is plain time by
// doorbuster time, above 1 is faster than plain.
func BenchmarkAccept(b *testing.B) {
	redisServer, natsServer := harness.Redis(b), harness.NATS(b)
	plain := servePlain(b, redisServer)
	ours, open := serveDoorbuster(b, redisServer, natsServer)
	users := 0
	var plainTook, oursTook time.Duration
	for b.Loop() {
		saleID := "bench-" + itoa(users)
		open(saleID)
		plainTook += storm(b, plain, saleID, users)
		oursTook += storm(b, ours, saleID, users)
		users += benchRound
	}
	grabs := float64(users)
	b.ReportMetric(grabs/plainTook.Seconds(), "plain-grabs/s")
	b.ReportMetric(grabs/oursTook.Seconds(), "doorbuster-grabs/s")
	b.ReportMetric(plainTook.Seconds()/oursTook.Seconds(), "ratio")
}

// storm sends benchRound grabs of new users over benchConnections connections,
// each of which must be won, and returns how long it took.
func storm(b *testing.B, target, saleID string, firstUser int) time.Duration {
	b.Helper()
	var next atomic.Int64
	return overConnections(b, target, benchConnections, func(conn net.Conn, answers *bufio.Reader) error {
		var request []byte
		for n := next.Add(1); n <= benchRound; n = next.Add(1) {
			user := firstUser + int(n)
			request = append(request[:0], "POST /v1/sales/"+saleID+"/grabs HTTP/1.1\r\nHost: b\r\nX-User-ID: user-"...)
			request = strconv.AppendInt(request, int64(user), 10)
			request = append(request, "\r\nIdempotency-Key: key-"...)
			request = strconv.AppendInt(request, int64(user), 10)
			request = append(request, "\r\nContent-Length: 0\r\n\r\n"...)
			if _, err := conn.Write(request); err != nil {
				return err
			}
			if status, err := readAnswer(answers); err != nil || status != http.StatusCreated {
				return fmt.Errorf("user %d: status %d, %w", user, status, err)
			}
		}
		return nil
	})
}

// overConnections plays the same part over many connections at a time and returns how
// long that took, from when all are connected to when the last has ended.
func overConnections(b *testing.B, target string, connections int, play func(net.Conn, *bufio.Reader) error) time.Duration {
	b.Helper()
	all := make([]net.Conn, connections)
	for i := range all {
		conn, err := net.Dial("tcp", target)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		all[i] = conn
	}
	var wg sync.WaitGroup
	start := time.Now()
	for _, conn := range all {
		wg.Go(func() {
			if err := play(conn, bufio.NewReader(conn)); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// readAnswer reads a response cheaply: the load must not cost more than what it
// measures.
func readAnswer(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil || len(line) < 12 {
		return 0, fmt.Errorf("status line %q: %w", line, err)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		const name = "Content-Length: "
		if len(line) > len(name) && string(line[:len(name)]) == name {
			if length, err = strconv.Atoi(string(line[len(name) : len(line)-2])); err != nil {
				return 0, err
			}
		}
	}
	_, err = io.CopyN(io.Discard, r, int64(length))
	return status, err
}

func listen(b *testing.B, handler http.Handler) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// listenFast serves as the grab service does.
func listenFast(b *testing.B, handler http.Handler) string {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	bound := make(chan net.Addr, 1)
	server := &web.Server{
		Addr: "127.0.0.1:0", Handler: handler, ShutdownTimeout: time.Second, Fast: true,
		OnListen: func(addr net.Addr) { bound <- addr },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return (<-bound).String()
}

// benchRedis is a client as the grab service has it.
func benchRedis(b *testing.B, server *harness.RedisServer) *redis.Client {
	b.Helper()
	cfg := config.Redis{URL: server.URL(), DialTimeout: 2 * time.Second, Timeout: 5 * time.Second, Pool: 64}
	options, err := cfg.Options()
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(options.Simple())
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// plainScript is the step every tutorial has: check, decrement, remember.
var plainScript = redis.NewScript(`
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'already_grabbed' end
local left = tonumber(redis.call('GET', KEYS[1]))
if not left or left < 1 then return 'sold_out' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 'won'`)

func servePlain(b *testing.B, server *harness.RedisServer) string {
	b.Helper()
	client := benchRedis(b, server)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sales/{sale_id}/grabs", func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get(web.UserHeader)
		id := r.PathValue("sale_id")
		outcome, err := plainScript.Run(r.Context(), client, []string{id + ":stock", id + ":buyers"}, user).Text()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		status := http.StatusConflict
		if outcome == "won" {
			status = http.StatusCreated
		}
		web.Write(w, status, map[string]string{"outcome": outcome})
	})
	return listen(b, mux)
}

// serveDoorbuster returns the service's address and what opens a sale on both sides.
func serveDoorbuster(b *testing.B, redisServer *harness.RedisServer, natsServer *harness.NATSServer) (addr string, open func(saleID string)) {
	b.Helper()
	store := stock.New(benchRedis(b, redisServer))
	str, err := stream.Open(stream.Config{URL: natsServer.URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(str.Close)
	if err := str.AwaitTopology(b.Context()); err != nil {
		b.Fatal(err)
	}
	identity, err := web.NewIdentity(b.Context(), web.IdentityOptions{TrustUserHeader: true})
	if err != nil {
		b.Fatal(err)
	}
	registry := telemetry.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	service, err := grab.NewService(grab.ServiceConfig{
		Tuning:          config.GrabTuning{BatchMax: 192, QueueMax: 16384, InFlightMax: 20000, UnackedBatches: 3, SoldOutTTL: time.Second, LeaseTTL: 5 * time.Second},
		Front:           gateway,
		PublishDeadline: 2 * time.Second, Stock: store, Stream: str, Identity: identity,
		Metrics: telemetry.NewGrabMetrics(registry, sale.OutcomeNames()), Log: log,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-ended })
	harness.Eventually(b, 5*time.Second, "the service is ready", func() (bool, string) { return service.Ready(ctx) == nil, "" })
	router := web.NewRouter(telemetry.NewHTTPMetrics(registry), log)
	service.Mount(router)
	return listenFast(b, router), func(saleID string) {
		b.Helper()
		if err := redisServer.Client().Set(b.Context(), saleID+":stock", sale.MaxStock, 0).Err(); err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		s := &shop{store: store, minter: stock.NewMinter(store), stream: str, sale: &sale.Sale{
			ID: saleID, Name: saleID, Status: sale.StatusApproved, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
			PaymentWindow: sale.Duration(time.Minute), PerUserLimit: 1, Timezone: "UTC",
			Items: []sale.Item{{SKU: "A", Stock: sale.MaxStock, PriceCents: 100}}, Revision: 1,
		}}
		s.load(b, map[string]int64{"A": sale.MaxStock})
		if err := str.PutSale(b.Context(), s.sale); err != nil {
			b.Fatal(err)
		}
		harness.Eventually(b, 5*time.Second, "the sale is known", func() (bool, string) {
			_, known := service.Engine().Sale(saleID)
			return known, ""
		})
	}
}
