package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/prometheus/client_golang/prometheus"
)

// Routes lists the patterns that API serves.
var Routes = []string{
	"GET /v1/orders/{order_id}",
	"POST /v1/orders/{order_id}/cancel",
	"GET /v1/orders/{order_id}/events",
	"POST /v1/quotas/{key}/returns", // of Quotas
}

// Stock is what the API needs of Redis.
type Stock interface {
	Find(ctx context.Context, saleID, orderID string) (f stock.Found, ok bool, err error)
	State(ctx context.Context, saleID string, skus []string) (stock.State, error)
}

// Orders is what the API needs of the ledger.
type Orders interface {
	GetOrder(ctx context.Context, orderID string) (sale.Order, error)
	GetSale(ctx context.Context, saleID string) (sale.Sale, error)
	Cancel(ctx context.Context, orderID, actor, reason string) (sale.Order, sale.Giveback, error)
}

// Givebacks gives stock that the ledger has decided to come back to Redis.
type Givebacks interface {
	Return(ctx context.Context, g sale.Giveback) error
}

// APIConfig bounds the API. A zero field takes its default.
type APIConfig struct {
	// WaitMax is the longest wait a client may ask for, up to 50s; 0 lets nobody
	// wait, there is no other default.
	WaitMax time.Duration
	// WaitersMax is how many requests may wait at a time; beyond it the answer is
	// 503. Default 1000.
	WaitersMax int
	// Waiting tells how many do. Nil tells nobody.
	Waiting prometheus.Gauge
	// PollMin and PollMax bound the growing pause between two looks at an order that
	// another process may write. Defaults 25ms and 250ms.
	PollMin, PollMax time.Duration
	// LookTimeout bounds one look at ledger and Redis, and one decision. Default 3s.
	LookTimeout time.Duration
	// CancelWait is how long a cancel waits for an order that is still processing. Default 2s.
	CancelWait time.Duration
	// WatchMax is how long a client may watch an order before it has to ask again, 1s
	// to 1h. Default 10m.
	WatchMax time.Duration
	// WatchPoll is the longest pause between two looks at a watched order. Default 1s.
	WatchPoll time.Duration
	// Heartbeat is the longest silence on a watched order, so that proxies keep the
	// connection. Default 15s.
	Heartbeat time.Duration
	// GivebackTimeout bounds giving a cancelled order's stock back before the
	// answer; the relay does it later otherwise. Default 1s.
	GivebackTimeout time.Duration
}

// maxWait keeps a long poll within the server's limit for writing an answer.
const maxWait = 50 * time.Second

func (c APIConfig) withDefaults() (APIConfig, error) {
	setDefault(&c.WaitersMax, 1000)
	if c.Waiting == nil {
		c.Waiting = prometheus.NewGauge(prometheus.GaugeOpts{Name: "untold", Help: "Told to nobody."})
	}
	setDefault(&c.PollMin, 25*time.Millisecond)
	setDefault(&c.PollMax, 250*time.Millisecond)
	setDefault(&c.LookTimeout, 3*time.Second)
	setDefault(&c.CancelWait, 2*time.Second)
	setDefault(&c.WatchMax, 10*time.Minute)
	setDefault(&c.WatchPoll, time.Second)
	setDefault(&c.Heartbeat, 15*time.Second)
	setDefault(&c.GivebackTimeout, time.Second)
	switch {
	case c.WaitMax < 0 || c.WaitMax > maxWait:
		return c, fmt.Errorf("order: WaitMax must be 0s to %s", maxWait)
	case c.WaitersMax < 1:
		return c, errors.New("order: WaitersMax must be at least 1")
	case c.PollMin <= 0 || c.PollMax < c.PollMin:
		return c, errors.New("order: PollMin must be positive and at most PollMax")
	case c.WatchMax < time.Second || c.WatchMax > time.Hour:
		return c, errors.New("order: WatchMax must be 1s to 1h")
	case c.WatchPoll <= 0 || c.Heartbeat <= 0:
		return c, errors.New("order: WatchPoll and Heartbeat must be positive")
	case c.LookTimeout <= 0 || c.GivebackTimeout <= 0 || c.CancelWait < 0:
		return c, errors.New("order: LookTimeout and GivebackTimeout must be positive, CancelWait not negative")
	}
	return c, nil
}

// API answers the owners of orders.
type API struct {
	cfg       APIConfig
	identity  web.Identity
	resolver  resolver
	orders    Orders
	givebacks Givebacks
	waiters   *waiters
	log       *slog.Logger
}

// NewAPI returns the API.
func NewAPI(cfg APIConfig, identity web.Identity, orders Orders, st Stock, givebacks Givebacks, log *slog.Logger) (*API, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &API{
		cfg: cfg, identity: identity, orders: orders, givebacks: givebacks, log: log,
		resolver: resolver{ledger: orders, stock: st}, waiters: newWaiters(cfg.WaitersMax, cfg.Waiting),
	}, nil
}

// Changed wakes the requests that wait for an order: it is in the ledger now, or has
// another status there.
func (a *API) Changed(orderID string) { a.waiters.tell(orderID) }

// Mount registers the API's routes.
func (a *API) Mount(router *web.Router) {
	router.HandleFunc(Routes[0], a.get)
	router.HandleFunc(Routes[1], a.cancel)
	router.HandleFunc(Routes[2], a.watch)
}

func (a *API) get(w http.ResponseWriter, r *http.Request) {
	user, problem := a.identity.User(r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	wait, problem := a.waitOf(r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	v, err := a.await(r.Context(), user, r.PathValue("order_id"), wait)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	web.Write(w, http.StatusOK, v)
}

// waitOf reads ?wait=, a Go duration.
func (a *API) waitOf(r *http.Request) (time.Duration, *web.Problem) {
	given, ok := r.URL.Query()["wait"]
	if !ok {
		return 0, nil
	}
	wait, err := time.ParseDuration(given[0])
	if err != nil || len(given) > 1 || wait < 0 || wait > a.cfg.WaitMax {
		return 0, web.InvalidField("wait", fmt.Sprintf("must be one duration from 0s to %s, such as 5s", a.cfg.WaitMax))
	}
	return wait, nil
}

// await looks an order up until it is written or the time is over. Between two
// looks nothing is held but a place among the waiters.
func (a *API) await(ctx context.Context, user, orderID string, wait time.Duration) (View, error) {
	v, err := a.look(ctx, user, orderID)
	if err != nil || v.written() || wait == 0 {
		return v, err
	}
	place, ok := a.waiters.join(orderID)
	if !ok {
		return View{}, web.Unavailable(web.CodeUnavailable, "too many requests wait for orders; ask without wait", retryAfter)
	}
	defer place.leave()
	written := place.told()
	over := time.NewTimer(wait)
	defer over.Stop()
	draining := web.Draining(ctx)
	for attempt := 1; ; attempt++ {
		pause := time.NewTimer(backoff.Delay(attempt, a.cfg.PollMin, a.cfg.PollMax))
		last := false
		select {
		case <-written:
			written = nil // told once; a look that fails to see it goes on polling
		case <-pause.C:
		case <-over.C:
			last = true
		case <-draining:
			last = true
		case <-ctx.Done():
			last = true
		}
		pause.Stop()
		if ctx.Err() != nil {
			return v, nil // the client is gone
		}
		if v, err = a.look(ctx, user, orderID); err != nil || last || v.written() {
			return v, err
		}
	}
}

func (a *API) look(ctx context.Context, user, orderID string) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.LookTimeout)
	defer cancel()
	return a.resolver.resolve(ctx, user, orderID)
}

// retryAfter is when a client that was turned away may come again.
const retryAfter = time.Second

func (a *API) cancel(w http.ResponseWriter, r *http.Request) {
	user, problem := a.identity.User(r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	v, err := a.await(r.Context(), user, r.PathValue("order_id"), a.cfg.CancelWait)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	switch v.Status {
	case sale.OrderPending, sale.OrderProcessing:
		web.Fail(w, r, web.Conflict(web.CodeOrderProcessing, "the order is not written yet; try again").
			With(orderStatus, string(v.Status)).WithRetryAfter(retryAfter))
		return
	case sale.OrderVoid:
		web.Fail(w, r, notCancellable(v.Status))
		return
	}
	if v, err = a.decide(r.Context(), v.OrderID); err != nil {
		a.fail(w, r, err)
		return
	}
	web.Write(w, http.StatusOK, v)
}

// decide cancels an order in the ledger and then gives its stock back. Once the
// ledger has decided, the client leaving must not keep the stock away from others.
func (a *API) decide(ctx context.Context, orderID string) (View, error) {
	ctx = context.WithoutCancel(ctx)
	deciding, cancel := context.WithTimeout(ctx, a.cfg.LookTimeout)
	defer cancel()
	o, giveback, err := a.orders.Cancel(deciding, orderID, ledger.ActorUser, "")
	if wrong, ok := errors.AsType[*ledger.OrderStatusError](err); ok && wrong.Status == sale.OrderCancelled {
		// An operator was first, and gives the stock back.
		o, err = a.orders.GetOrder(deciding, orderID)
		return viewOf(o), err
	}
	if err != nil {
		return View{}, err
	}
	a.waiters.tell(orderID)
	giving, cancel := context.WithTimeout(ctx, a.cfg.GivebackTimeout)
	defer cancel()
	if err := a.givebacks.Return(giving, giveback); err != nil {
		// The ledger has decided, so the cancel has succeeded.
		a.log.WarnContext(ctx, "stock of a cancelled order not given back yet, the relay will", "order_id", orderID, "error", err)
	}
	return viewOf(o), nil
}

// fail answers for an order that was not found, not cancelled or not looked up.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if p, ok := errors.AsType[*web.Problem](err); ok {
		web.Fail(w, r, p)
		return
	}
	if errors.Is(err, errNoOrder) || errors.Is(err, ledger.ErrNotFound) {
		web.Fail(w, r, web.NotFound("there is no such order"))
		return
	}
	if wrong, ok := errors.AsType[*ledger.OrderStatusError](err); ok {
		web.Fail(w, r, notCancellable(wrong.Status))
		return
	}
	if r.Context().Err() == nil { // else the client left, which is no news
		a.log.WarnContext(r.Context(), "order not looked up", "route", r.Pattern, "error", err)
	}
	web.Fail(w, r, web.Unavailable(web.CodeUnavailable, "the order cannot be looked up now; try again", retryAfter))
}

func notCancellable(status sale.OrderStatus) *web.Problem {
	return web.Conflict(web.CodeOrderNotCancellable, "the order is past the point of cancelling").With(orderStatus, string(status))
}

// orderStatus is the member of a problem that names the order's status; the
// member status is the HTTP status.
const orderStatus = "order_status"
