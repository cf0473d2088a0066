package order_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

func TestOwnerSeesWhereTheOrderStands(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	ownOrder := func(user string) string { return sale.OrderID(c.sale.ID, user, "k") }
	pending := func(user string) { c.win(user) }
	processing := func(user string) { c.win(user); c.acknowledge() }
	written := func(user string) { g := c.win(user); c.acknowledge(); c.write(g) }
	nothing := func(string) {}

	for name, tc := range map[string]struct {
		prepare func(user string)
		id      func(user string) string
		status  int
		want    map[string]any
	}{
		"granted, not known to be in the stream": {pending, ownOrder, 200, map[string]any{"status": "pending"}},
		"granted and in the stream":              {processing, ownOrder, 200, map[string]any{"status": "processing"}},
		"written":                                {written, ownOrder, 200, map[string]any{"status": "pending_payment"}},
		"written, and lost in Redis":             {func(u string) { c.write(c.grant(u, "A", 1)) }, ownOrder, 200, map[string]any{"status": "pending_payment"}},
		"an id of this user that never won":      {nothing, ownOrder, 200, map[string]any{"status": "void"}},
		"an order of somebody else":              {func(string) { c.write(c.grant("other", "A", 1)) }, func(string) string { return ownOrder("other") }, 404, map[string]any{"code": "not_found"}},
		"a grant of somebody else":               {func(string) { c.win("another") }, func(string) string { return ownOrder("another") }, 404, map[string]any{"code": "not_found"}},
		"no order id":                            {nothing, func(string) string { return "nonsense" }, 404, map[string]any{"code": "not_found"}},
		"an order id of an unknown sale":         {nothing, func(u string) string { return sale.OrderID("no-such-sale", u, "k") }, 404, map[string]any{"code": "not_found"}},
	} {
		t.Run(name, func(t *testing.T) {
			user := harness.Name(t)
			tc.prepare(user)
			a := c.ask(http.MethodGet, "/v1/orders/"+tc.id(user), user)
			a.require(t, tc.status, tc.want)
			if tc.status == 200 {
				a.require(t, 200, map[string]any{"order_id": ownOrder(user), "sale_id": c.sale.ID, "user": user})
			}
		})
	}
}

func TestUserWithTheSameTagIsStillAStranger(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	owner, stranger := sameTag()
	g := c.win(owner)
	c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, stranger).require(t, 404, map[string]any{"code": "not_found"})
	c.write(g)
	c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, stranger).require(t, 404, map[string]any{"code": "not_found"})
	c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", stranger).require(t, 404, map[string]any{"code": "not_found"})
	c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, owner).require(t, 200, map[string]any{"status": "pending_payment"})
}

// sameTag finds two users whose tags in order ids are the same: of tags of 32
// bits, some 80,000 users have a pair.
func sameTag() (a, b string) {
	seen := make(map[uint32]string)
	for i := 0; ; i++ {
		user := fmt.Sprint("user-", i)
		if other, ok := seen[sale.OwnerTag(user)]; ok {
			return other, user
		}
		seen[sale.OwnerTag(user)] = user
	}
}

func TestOrderIsToldWithItsItemsAndTimesWrittenOrNot(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	g := c.win("u")
	for _, written := range []bool{false, true} {
		if written {
			c.write(g)
		}
		a := c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, "u")
		a.require(t, 200, map[string]any{
			"created_at": g.At.Format("2006-01-02T15:04:05.999Z07:00"), "expires_at": g.ExpiresAt.Format("2006-01-02T15:04:05.999Z07:00"),
		})
		if got, want := fmt.Sprint(a.body["items"]), "[map[price_cents:100 quantity:1 returned:0 sku:A]]"; got != want {
			t.Errorf("written %v: items are %s, want %s", written, got, want)
		}
	}
}

func TestUnloadedSaleMakesAnOrderPendingUntilTheRestoreKnows(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	kept, lost := c.win("kept"), c.win("lost")
	must(t, c.store.Close(t.Context(), c.sale.ID))
	for _, g := range []sale.Grant{kept, lost} {
		c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, g.User).require(t, 200, map[string]any{"status": "pending"})
	}
	c.load(kept)
	c.ask(http.MethodGet, "/v1/orders/"+kept.OrderID, "kept").require(t, 200, map[string]any{"status": "processing"})
	c.ask(http.MethodGet, "/v1/orders/"+lost.OrderID, "lost").require(t, 200, map[string]any{"status": "void"})
}

func TestRequestsThatAreWrongAreToldWhy(t *testing.T) {
	c := openCounter(t, order.APIConfig{WaitMax: 30 * time.Second})
	id := sale.OrderID(c.sale.ID, "u", "k")
	c.ask(http.MethodGet, "/v1/orders/"+id, "").require(t, 401, map[string]any{"code": "unauthorized"})
	c.ask(http.MethodPost, "/v1/orders/"+id+"/cancel", "").require(t, 401, map[string]any{"code": "unauthorized"})
	for _, wait := range []string{"", "5", "-1s", "31s", "soon", "1s&wait=2s"} {
		c.ask(http.MethodGet, "/v1/orders/"+id+"?wait="+wait, "u").require(t, 400, map[string]any{"code": "invalid_field", "field": "wait"})
	}
}

func TestWaiterHearsOfItsOrderAtOnce(t *testing.T) {
	c := openCounter(t, patient)
	g := c.win("u")
	answers := c.asked(http.MethodGet, "/v1/orders/"+g.OrderID+"?wait=30s", "u")
	c.awaitWaiters(1)
	c.write(g)
	c.api.Changed(g.OrderID)
	(<-answers).require(t, 200, map[string]any{"status": "pending_payment"})
	c.awaitWaiters(0)
}

func TestWaiterFindsAnOrderThatAnotherProcessWrites(t *testing.T) {
	c := openCounter(t, order.APIConfig{WaitMax: 30 * time.Second})
	g := c.win("u")
	answers := c.asked(http.MethodGet, "/v1/orders/"+g.OrderID+"?wait=30s", "u")
	c.awaitWaiters(1)
	c.write(g)
	(<-answers).require(t, 200, map[string]any{"status": "pending_payment"})
}

func TestWaitEndsWithWhatIsKnownThen(t *testing.T) {
	c := openCounter(t, patient)
	g := c.win("u")
	c.ask(http.MethodGet, "/v1/orders/"+g.OrderID+"?wait=50ms", "u").require(t, 200, map[string]any{"status": "pending"})
}

func TestWaitersBeyondTheLimitAreTurnedAway(t *testing.T) {
	cfg := patient
	cfg.WaitersMax = 1
	c := openCounter(t, cfg)
	g, other := c.win("u"), c.win("other")
	answers := c.asked(http.MethodGet, "/v1/orders/"+g.OrderID+"?wait=30s", "u")
	c.awaitWaiters(1)
	a := c.ask(http.MethodGet, "/v1/orders/"+other.OrderID+"?wait=30s", "other")
	a.require(t, 503, map[string]any{"code": "unavailable"})
	a.requireRetryAfter(t)
	c.ask(http.MethodGet, "/v1/orders/"+other.OrderID, "other").require(t, 200, map[string]any{"status": "pending"})

	c.write(g)
	c.api.Changed(g.OrderID)
	(<-answers).require(t, 200, map[string]any{"status": "pending_payment"})
}

func TestStoppingServerAnswersItsWaiters(t *testing.T) {
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
	answers := c.asked(http.MethodGet, "/v1/orders/"+g.OrderID+"?wait=30s", "u")
	c.awaitWaiters(1)
	stop()
	(<-answers).require(t, 200, map[string]any{"status": "pending"})
	http.DefaultClient.CloseIdleConnections()
	must(t, <-ended)
}

func TestStoresThatCannotBeAskedAreUnavailable(t *testing.T) {
	database := harness.MariaDB(t)
	c := openCounterOn(t, database, order.APIConfig{LookTimeout: 2 * time.Second})
	written, pending := c.win("written"), c.win("pending")
	c.write(written)
	get := func(g sale.Grant) answer { return c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, g.User) }

	c.redis.Kill()
	get(written).require(t, 200, map[string]any{"status": "pending_payment"})
	a := get(pending)
	a.require(t, 503, map[string]any{"code": "unavailable"})
	a.requireRetryAfter(t)

	database.Kill()
	for _, a := range []answer{get(written), c.ask(http.MethodPost, "/v1/orders/"+written.OrderID+"/cancel", "written")} {
		a.require(t, 503, map[string]any{"code": "unavailable"})
		a.requireRetryAfter(t)
	}
}

func TestCancelGivesTheStockBackAndMayBeRepeated(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	g := c.win("u")
	c.write(g)
	c.back.err = fmt.Errorf("redis is away") // the relay will; the cancel has succeeded
	for range 2 {
		a := c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", "u")
		a.require(t, 200, map[string]any{"status": "cancelled", "reason": "user", "order_id": g.OrderID})
		if got, want := fmt.Sprint(a.body["items"]), "[map[price_cents:100 quantity:1 returned:1 sku:A]]"; got != want {
			t.Errorf("items are %s, want %s", got, want)
		}
	}
	if n := c.count("SELECT sold FROM items WHERE sku = 'A'"); n != 0 {
		t.Errorf("%d units sold, want 0", n)
	}
	want := sale.GivebackID(sale.FlowCancel, g.OrderID)
	if len(c.back.all) != 2 || c.back.all[0].ID != want || c.back.all[1].ID != want {
		t.Errorf("returned %+v, want %s twice", c.back.all, want)
	}
	c.ask(http.MethodGet, "/v1/orders/"+g.OrderID, "u").require(t, 200, map[string]any{"status": "cancelled"})
}

func TestOrderThatAnOperatorCancelledIsCancelled(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	g := c.win("u")
	c.write(g)
	_, _, err := c.ledger.Cancel(t.Context(), g.OrderID, "operator", "by phone")
	must(t, err)
	c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", "u").require(t, 200, map[string]any{"status": "cancelled"})
	if len(c.back.all) != 0 {
		t.Errorf("returned %+v, which is the operator's to return", c.back.all)
	}
}

func TestOrderPastCancellingSaysItsStatus(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	for _, status := range []string{"paid", "fulfilled", "expired", "rejected"} {
		g := c.win(status)
		c.write(g)
		c.exec("UPDATE orders SET status = '" + status + "' WHERE id = '" + g.OrderID + "'")
		c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", status).
			require(t, 409, map[string]any{"code": "order_not_cancellable", "order_status": status, "status": 409.0})
	}
	c.ask(http.MethodPost, "/v1/orders/"+sale.OrderID(c.sale.ID, "nobody", "k")+"/cancel", "nobody").
		require(t, 409, map[string]any{"code": "order_not_cancellable", "order_status": "void"})
	if len(c.back.all) != 0 {
		t.Errorf("returned %+v, want nothing", c.back.all)
	}
}

func TestCancelIsForTheOwnerOnly(t *testing.T) {
	c := openCounter(t, order.APIConfig{})
	g := c.win("u")
	c.write(g)
	for _, user := range []string{"stranger", "U"} {
		c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", user).require(t, 404, map[string]any{"code": "not_found"})
	}
	c.ask(http.MethodPost, "/v1/orders/nonsense/cancel", "u").require(t, 404, map[string]any{"code": "not_found"})
	if status := c.status(g.OrderID); status != sale.OrderPendingPayment {
		t.Errorf("the order is %s, want pending_payment", status)
	}
}

func TestCancelWaitsShortlyForAnOrderThatIsNotWrittenYet(t *testing.T) {
	cfg := patient
	cfg.CancelWait = 20 * time.Second
	c := openCounter(t, cfg)
	g := c.win("u")
	answers := c.asked(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", "u")
	c.awaitWaiters(1)
	c.write(g)
	c.api.Changed(g.OrderID)
	(<-answers).require(t, 200, map[string]any{"status": "cancelled"})
}

func TestCancelOfAnOrderThatStaysUnwrittenIsToBeTriedAgain(t *testing.T) {
	cfg := patient
	cfg.CancelWait = 50 * time.Millisecond
	c := openCounter(t, cfg)
	g := c.win("u")
	a := c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", "u")
	a.require(t, 409, map[string]any{"code": "order_processing", "order_status": "pending", "status": 409.0})
	a.requireRetryAfter(t)
	c.acknowledge()
	a = c.ask(http.MethodPost, "/v1/orders/"+g.OrderID+"/cancel", "u")
	a.require(t, 409, map[string]any{"code": "order_processing", "order_status": "processing"})
}

func TestWorkerTellsThoseWhoWait(t *testing.T) {
	c := openCounter(t, patient)
	g := c.win("u")
	answers := c.asked(http.MethodGet, "/v1/orders/"+g.OrderID+"?wait=30s", "u")
	c.awaitWaiters(1)
	c.publish(g)
	c.workTelling(order.WorkerConfig{}, c.ledger, c.stream, c.api.Changed)
	(<-answers).require(t, 200, map[string]any{"status": "pending_payment"})
}

func TestAPIRefusesSettingsOutOfRange(t *testing.T) {
	for name, cfg := range map[string]order.APIConfig{
		"WaitMax":     {WaitMax: time.Minute},
		"WaitersMax":  {WaitersMax: -1},
		"PollMin":     {PollMin: time.Second, PollMax: time.Millisecond},
		"LookTimeout": {LookTimeout: -1},
		"WatchMax":    {WatchMax: 2 * time.Hour},
		"WatchPoll":   {WatchPoll: -1},
		"Heartbeat":   {Heartbeat: -1},
	} {
		if _, err := order.NewAPI(cfg, nil, nil, nil, nil, nil); err == nil || !contains(err.Error(), name) {
			t.Errorf("%s out of range: the error is %v", name, err)
		}
	}
}

func (c *counter) awaitWaiters(n int) {
	c.t.Helper()
	harness.Eventually(c.t, wait, "requests wait", func() (bool, string) {
		now := int(testutil.ToFloat64(c.metrics.Waiting))
		return now == n, fmt.Sprint(now)
	})
}
