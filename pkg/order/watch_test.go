package order_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// watched is a stream of events that a client reads.
type watched struct {
	t      testing.TB
	status int
	header http.Header
	events chan event // closed at the end of the stream
}

// event is one server-sent event; a comment has no name.
type event struct {
	name, id, retry string
	view            map[string]any
}

// watch begins to watch an order; lastID is of the event that the client had before.
func (c *counter) watch(g sale.Grant, user, lastID string) *watched {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/v1/orders/"+g.OrderID+"/events", nil)
	must(c.t, err)
	request.Header.Set(web.UserHeader, user)
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // read closes it
	must(c.t, err)
	w := &watched{t: c.t, status: response.StatusCode, header: response.Header, events: make(chan event, 100)}
	go w.read(response.Body)
	return w
}

func (w *watched) read(body io.ReadCloser) {
	defer body.Close()
	defer close(w.events)
	var e event
	for lines := bufio.NewScanner(body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "retry":
			e.retry = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.view); err != nil {
				w.t.Errorf("data %q: %v", value, err)
			}
		case "":
			w.events <- e
			e = event{}
		}
	}
}

// next is the next event that is no comment; ok is false at the end of the stream.
func (w *watched) next() (e event, ok bool) {
	w.t.Helper()
	over := time.After(wait)
	for {
		select {
		case e, ok = <-w.events:
			if !ok || e.name != "" {
				return e, ok
			}
		case <-over:
			w.t.Fatal("no event came")
		}
	}
}

// requireNext holds that the next event tells this status, and returns it.
func (w *watched) requireNext(status sale.OrderStatus) event {
	w.t.Helper()
	e, ok := w.next()
	if !ok || e.name != "status" || e.view["status"] != string(status) || e.id == "" || e.retry == "" {
		w.t.Fatalf("got %+v (%v), want status %s", e, ok, status)
	}
	return e
}

func (w *watched) requireEnd() {
	w.t.Helper()
	if e, ok := w.next(); ok {
		w.t.Fatalf("got %+v, want the end of the stream", e)
	}
}

// quickly are settings of an API that finds at once what other processes did.
var quickly = order.APIConfig{PollMin: 5 * time.Millisecond, PollMax: 10 * time.Millisecond, WatchPoll: 10 * time.Millisecond}

func TestOwnerHearsEachChangeOfAnOrderUntilItIsFinal(t *testing.T) {
	c := openCounter(t, quickly)
	g := c.win("u")
	w := c.watch(g, "u", "")
	if got := w.header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type is %s", got)
	}
	first := w.requireNext(sale.OrderPending)
	if first.view["order_id"] != g.OrderID || first.view["user"] != "u" {
		t.Errorf("the event tells %v", first.view)
	}
	c.acknowledge()
	w.requireNext(sale.OrderProcessing)
	c.write(g) // what follows happens in other processes
	w.requireNext(sale.OrderPendingPayment)
	get[sale.Order](t)(c.ledger.Pay(t.Context(), g.OrderID))
	w.requireNext(sale.OrderPaid)
	c.exec("UPDATE orders SET status = 'fulfilled'")
	last := w.requireNext(sale.OrderFulfilled)
	w.requireEnd()
	c.awaitWaiters(0)

	again := c.watch(g, "u", last.id)
	if again.status != http.StatusNoContent {
		t.Errorf("who comes back after the final status is answered %d", again.status)
	}
	again.requireEnd()
	c.watch(g, "u", "of something else").requireNext(sale.OrderFulfilled)
}

func TestOwnerHearsAtOnceWhatHappensInTheSameProcess(t *testing.T) {
	slow := patient
	slow.WatchPoll = time.Hour
	c := openCounter(t, slow)
	late, cancelled := c.win("late"), c.win("u")
	c.write(late, cancelled)
	for _, g := range []sale.Grant{late, cancelled} {
		w := c.watch(g, g.User, "")
		w.requireNext(sale.OrderPendingPayment)
		c.api.Changed(g.OrderID) // nothing has: nothing is told
		if g.User == "u" {
			c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", "u").require(t, 200, nil)
			w.requireNext(sale.OrderCancelled)
		} else {
			c.exec("UPDATE orders SET expires_at = '2001-01-01 00:00:00' WHERE id = '" + g.OrderID + "'")
			_, stop := c.expire(soon, c.back)
			if e := w.requireNext(sale.OrderExpired); e.view["reason"] != "payment_timeout" {
				t.Errorf("the event tells %v", e.view)
			}
			stop()
		}
		w.requireEnd()
	}
}

func TestWatchingIsForTheOwnerOnlyAndBounded(t *testing.T) {
	cfg := quickly
	cfg.WaitersMax = 1
	c := openCounter(t, cfg)
	g, other := c.win("u"), c.win("other")
	path := "/v1/orders/" + g.OrderID + "/events"
	c.ask(http.MethodGet, path, "").require(t, 401, map[string]any{"code": "unauthorized"})
	c.ask(http.MethodGet, path, "stranger").require(t, 404, map[string]any{"code": "not_found"})
	w := c.watch(g, "u", "")
	w.requireNext(sale.OrderPending)
	a := c.ask(http.MethodGet, "/v1/orders/"+other.OrderID+"/events", "other")
	a.require(t, 503, map[string]any{"code": "unavailable"})
	a.requireRetryAfter(t)
}

func TestAWatchEndsWhenItIsLongEnough(t *testing.T) {
	cfg := quickly
	cfg.WatchMax = time.Second
	c := openCounter(t, cfg)
	g := c.win("u")
	w := c.watch(g, "u", "")
	w.requireNext(sale.OrderPending)
	w.requireEnd()
	c.awaitWaiters(0)
	c.watch(g, "u", "").requireNext(sale.OrderPending)
}

func TestAWatchOutlivesTheTimeLimitsOfTheServer(t *testing.T) {
	cfg := quickly
	cfg.Heartbeat = 20 * time.Millisecond
	c := openCounter(t, cfg)
	limit := 200 * time.Millisecond
	server := httptest.NewUnstartedServer(c.router)
	server.Config.ReadTimeout, server.Config.WriteTimeout = limit, limit
	server.Start()
	t.Cleanup(server.Close)
	c.url = server.URL
	g := c.win("u")
	w := c.watch(g, "u", "")
	w.requireNext(sale.OrderPending)
	begin := time.Now()
	for time.Since(begin) < 3*limit {
		if e, ok := <-w.events; !ok || e.name != "" {
			t.Fatalf("got %+v (%v) after %s, want heartbeats", e, ok, time.Since(begin))
		}
	}
	c.write(g)
	w.requireNext(sale.OrderPendingPayment)
}

func TestStoppingServerEndsItsWatches(t *testing.T) {
	c := openCounter(t, patient)
	g := c.win("u")
	bound := make(chan net.Addr, 1)
	server := &web.Server{
		Addr: "127.0.0.1:0", Handler: c.router, ShutdownTimeout: 20 * time.Second, Log: c.log,
		OnListen: func(addr net.Addr) { bound <- addr },
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	c.url = "http://" + (<-bound).String()
	w := c.watch(g, "u", "")
	w.requireNext(sale.OrderPending)
	stop()
	w.requireEnd()
	http.DefaultClient.CloseIdleConnections()
	must(t, <-ended)
}
