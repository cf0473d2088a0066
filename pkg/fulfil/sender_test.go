package fulfil_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestAPaidOrderIsSentOnceSignedAndThenFulfilled(t *testing.T) {
	harness.SharedMariaDB(t) // outlives the test
	s := openShop(t)
	r := receive(t, status(http.StatusNoContent))
	s.sale("s", r.URL+"/hook")
	waiting := s.unpaid("s", 1)[0]
	id := s.orders("s", 1)[0]
	s.send(keen)
	s.await(ledger.DeliveryDelivered, id)

	s.requireOrder(id, sale.OrderFulfilled, "")
	s.requireOrder(waiting, sale.OrderPendingPayment, "")
	if told := s.told(id); told != "fulfilled" {
		t.Errorf("told %q", told)
	}
	visits := r.seen()
	if len(visits) != 1 {
		t.Fatalf("the receiver was called %d times, want once", len(visits))
	}
	v := visits[0]
	if v.event.Type != "order.paid" || v.event.ID != v.id || v.event.Data.ID != id || v.event.Data.Lines[0].Quantity != 2 {
		t.Errorf("webhook %s holds %+v", v.id, v.event)
	}
	if v.header.Get("Content-Type") != "application/json" || v.header.Get("User-Agent") != "Doorbuster" {
		t.Errorf("headers %v", v.header)
	}
	s.requireSound("s")
}

func TestAnOrderIsSentBeforeItIsPaidWhereTheSaleSaysSo(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK))
	s.sale("s", r.URL, onCreation)
	id := s.unpaid("s", 1)[0]
	s.send(keen)
	s.await(ledger.DeliveryDelivered, id)
	s.requireOrder(id, sale.OrderFulfilled, "")
	if got := r.seen()[0].event.Type; got != "order.created" {
		t.Errorf("sent %s", got)
	}
}

func TestWhileSecretsChangeEitherOneVerifies(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK)) // fails the test unless one signature is of its key
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.Keys = [][]byte{[]byte("the next key of these tests....."), key}
	s.send(cfg)
	s.await(ledger.DeliveryDelivered, id)
	if signatures := strings.Fields(r.seen()[0].header.Get("Webhook-Signature")); len(signatures) != 2 {
		t.Errorf("signatures %v", signatures)
	}
}

func TestAFailedCallIsRepeatedLaterAndLater(t *testing.T) {
	s := openShop(t)
	r := receive(t, inTurn(500, 404, 302, 503, 400, 200))
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.RetryBase, cfg.RetryMax = 40*time.Millisecond, 320*time.Millisecond
	s.send(cfg)
	s.await(ledger.DeliveryDelivered, id)

	visits := r.seen()
	if len(visits) != 6 {
		t.Fatalf("called %d times, want 6", len(visits))
	}
	for i := 1; i < len(visits); i++ {
		full := min(cfg.RetryBase<<(i-1), cfg.RetryMax)
		if gap := visits[i].at.Sub(visits[i-1].at); gap < full/2 {
			t.Errorf("call %d came %s after the one before, want at least %s", i+1, gap, full/2)
		}
		if visits[i].id != visits[0].id {
			t.Errorf("call %d has the id %s, the first had %s", i+1, visits[i].id, visits[0].id)
		}
	}
	if n := testutil.ToFloat64(s.metrics.Calls.Of("refused")); n != 5 {
		t.Errorf("counted %v refused calls, want 5", n)
	}
}

func TestAReceiverMayAskForMoreTime(t *testing.T) {
	s := openShop(t)
	var calls atomic.Int64
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.RetryMax = time.Minute
	s.send(cfg)
	s.await(ledger.DeliveryDelivered, id)
	visits := r.seen()
	if gap := visits[1].at.Sub(visits[0].at); gap < 990*time.Millisecond {
		t.Errorf("called again after %s, asked for 1s", gap)
	}
}

func TestAnOrderThatCannotBeFulfilledIsRolledBackOnceItsTimeIsUp(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusInternalServerError))
	s.sale("s", r.URL, rollback)
	ids := s.orders("s", 3)
	begin := time.Now()
	s.send(keen)
	s.send(keen) // another process
	s.await(ledger.DeliveryFailed, ids...)
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("given up after %s, want a second", took)
	}
	var want []string
	for _, id := range ids {
		s.requireOrder(id, sale.OrderRejected, sale.ReasonFulfilmentFailed)
		if told := s.told(id); told != "rejected" {
			t.Errorf("told %q", told)
		}
		want = append(want, "reject:"+id)
	}
	harness.Eventually(t, wait, "the stock comes back", func() (bool, string) {
		back := s.back.ids()
		slices.Sort(back)
		slices.Sort(want)
		return slices.Equal(back, want), fmt.Sprint(back)
	})
	s.requireSound("s")
}

func TestAReceiverThatIsGoneIsNotCalledAgain(t *testing.T) {
	s := openShop(t)
	r := receive(t, inTurn(http.StatusGone, http.StatusOK))
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	s.send(keen)
	s.await(ledger.DeliveryParked, id)
	s.requireOrder(id, sale.OrderPaid, "")
	if n := len(r.seen()); n != 1 {
		t.Errorf("called %d times, want once", n)
	}

	get[ledger.Delivery](t)(s.ledger.Resend(t.Context(), id)) // as an operator does
	s.await(ledger.DeliveryDelivered, id)
	s.requireOrder(id, sale.OrderFulfilled, "")
	if visits := r.seen(); len(visits) != 2 || visits[0].id != visits[1].id {
		t.Errorf("%d calls, want a second one with the same id", len(visits))
	}
}

func TestAnOrderThatEndsBeforehandIsNotSent(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK))
	s.sale("s", r.URL, onCreation)
	ids := s.unpaid("s", 2)
	_, _, err := s.ledger.Cancel(t.Context(), ids[0], "user", "")
	must(t, err)
	s.send(keen)
	s.await(ledger.DeliveryDropped, ids[0])
	s.await(ledger.DeliveryDelivered, ids[1])
	if n := r.perOrder()[ids[0]]; n != 0 {
		t.Errorf("a cancelled order was sent %d times", n)
	}
	s.requireOrder(ids[0], sale.OrderCancelled, sale.ReasonUser)
}

func TestSlowReceiversHoldUpNobodyElse(t *testing.T) {
	s := openShop(t)
	cfg := keen
	cfg.Workers, cfg.PerHost, cfg.Timeout, cfg.SlowAfter = 8, 4, 30*time.Second, 100*time.Millisecond
	var held []string
	for i := range 6 { // three times the workers, and each with a queue
		id := fmt.Sprint("hangs-", i)
		s.sale(id, receive(t, hang(t)).URL)
		held = append(held, s.orders(id, 20)...)
	}
	s.send(cfg)
	harness.Eventually(t, wait, "calls hang", func() (bool, string) {
		n := testutil.ToFloat64(s.metrics.InFlight)
		return n >= 8, fmt.Sprint(n)
	})
	r := receive(t, status(http.StatusOK))
	s.sale("soon", r.URL)
	begin := time.Now()
	ids := s.orders("soon", 50)
	s.awaitWithin(cfg.Timeout/2, ledger.DeliveryDelivered, ids...)
	t.Logf("50 orders of a receiver that answers were fulfilled in %s, their writing included", time.Since(begin))

	harness.Eventually(t, wait, "every hanging receiver is known to be slow", func() (bool, string) {
		n := testutil.ToFloat64(s.metrics.SlowHosts)
		return n == 6, fmt.Sprint(n)
	})
	if n := testutil.ToFloat64(s.metrics.InFlight); n > 24 {
		t.Errorf("%v calls under way, want no more than 4 to each of 6 receivers", n)
	}
	for _, id := range held {
		s.requireOrder(id, sale.OrderPaid, "")
	}
}

func TestAReceiverHasNoMoreCallsAtATimeThanItsShare(t *testing.T) {
	s := openShop(t)
	var now, most atomic.Int64
	proceed := make(chan struct{})
	r := receive(t, func(http.ResponseWriter, *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-proceed
		now.Add(-1)
	})
	s.sale("s", r.URL)
	ids := s.orders("s", 30)
	cfg := keen
	cfg.PerHost = 3
	s.send(cfg)
	harness.Eventually(t, wait, "calls are under way", func() (bool, string) { return now.Load() == 3, fmt.Sprint(now.Load()) })
	close(proceed)
	s.await(ledger.DeliveryDelivered, ids...)
	if n := most.Load(); n != 3 {
		t.Errorf("%d calls at a time, want 3", n)
	}
}

func TestSendersSideBySideCallOncePerOrder(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK))
	s.sale("s", r.URL)
	ids := s.orders("s", 200)
	for range 2 {
		s.sendWith(keen, s.openLedger())
	}
	s.await(ledger.DeliveryDelivered, ids...)
	for id, n := range r.perOrder() {
		if n != 1 {
			t.Errorf("order %s was sent %d times", id, n)
		}
	}
	if n := len(r.perOrder()); n != len(ids) {
		t.Errorf("%d orders were sent, want %d", n, len(ids))
	}
}

// deaf is a ledger that does not hear what came of calls, as if the process died in between.
type deaf struct {
	fulfil.Ledger
	asked chan string
}

func (d *deaf) Fulfil(_ context.Context, one ledger.Delivery) error {
	d.asked <- one.OrderID
	return errors.New("the process died")
}

func TestACallWhoseResultWasLostIsRepeatedWhenTheClaimIsOver(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK))
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.Timeout, cfg.RecordTimeout = 300*time.Millisecond, 300*time.Millisecond
	crashing := &deaf{Ledger: s.ledger, asked: make(chan string, 10)}
	stop := s.sendWith(cfg, crashing)
	<-crashing.asked
	stop()
	s.requireOrder(id, sale.OrderPaid, "")

	s.send(cfg)
	s.await(ledger.DeliveryDelivered, id)
	s.requireOrder(id, sale.OrderFulfilled, "")
	if told := s.told(id); told != "fulfilled" {
		t.Errorf("told %q", told)
	}
	visits := r.seen()
	if len(visits) != 2 || visits[0].id != visits[1].id {
		t.Fatalf("%d calls, want two with one id", len(visits))
	}
	if gap := visits[1].at.Sub(visits[0].at); gap < cfg.Timeout {
		t.Errorf("called again after %s, while the claim held", gap)
	}
}

func TestACallThatIsCutOffByAStopIsMadeByAnother(t *testing.T) {
	s := openShop(t)
	first := make(chan struct{})
	var once sync.Once
	held := hang(t)
	r := receive(t, func(w http.ResponseWriter, request *http.Request) {
		mine := false
		once.Do(func() { mine = true })
		if mine {
			close(first)
			held(w, request)
		}
	})
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.Timeout = time.Minute // the claim holds for longer than the test
	stop := s.send(cfg)
	<-first
	stop()
	s.send(cfg)
	s.await(ledger.DeliveryDelivered, id)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	s := openShop(t)
	elsewhere := receive(t, status(http.StatusOK))
	r := receive(t, func(w http.ResponseWriter, request *http.Request) {
		http.Redirect(w, request, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	s.sale("s", r.URL, rollback)
	id := s.orders("s", 1)[0]
	s.send(keen)
	s.await(ledger.DeliveryFailed, id)
	if n := len(elsewhere.seen()); n != 0 {
		t.Errorf("followed %d times", n)
	}
	if d := get[ledger.Delivery](t)(s.ledger.GetDelivery(t.Context(), id)); d.LastError != "status 307" {
		t.Errorf("the error is %q", d.LastError)
	}
}

func TestAnAnswerWithoutEndIsNotReadToItsEnd(t *testing.T) {
	s := openShop(t)
	r := receive(t, func(w http.ResponseWriter, request *http.Request) {
		w.WriteHeader(http.StatusOK)
		for request.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.Timeout = time.Minute
	s.send(cfg)
	s.awaitWithin(cfg.Timeout/2, ledger.DeliveryDelivered, id)
}

func TestNeitherLogNorBooksHoldTokensOrSecrets(t *testing.T) {
	s := openShop(t)
	const token = "token-in-the-query"
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	urls := map[string]string{
		"refuses": receive(t, status(http.StatusTeapot)).URL, "hangs": receive(t, hang(t)).URL, "away": closed.URL,
	}
	var ids []string
	for name, url := range urls {
		s.sale(name, url+"/hook?secret="+token, rollback)
		ids = append(ids, s.orders(name, 1)...)
	}
	cfg := keen
	cfg.Timeout = 50 * time.Millisecond
	s.send(cfg)
	s.await(ledger.DeliveryFailed, ids...)
	var books strings.Builder
	for _, id := range ids {
		books.WriteString(get[ledger.Delivery](t)(s.ledger.GetDelivery(t.Context(), id)).LastError + "\n")
	}
	for _, reason := range []string{"status 418", "no answer within 50ms", "connection refused"} {
		if !strings.Contains(books.String(), reason) {
			t.Errorf("the books do not say %q:\n%s", reason, books.String())
		}
	}
	for where, text := range map[string]string{"log": s.log.String(), "books": books.String()} {
		for _, secret := range []string{token, string(key), base64.StdEncoding.EncodeToString(key)} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s holds %q", where, secret)
			}
		}
	}
	if !strings.Contains(s.log.String(), "webhook given up") {
		t.Error("the log does not tell that webhooks were given up")
	}
}

func TestWithoutASecretNobodyIsCalled(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK))
	s.sale("s", r.URL)
	id := s.orders("s", 1)[0]
	cfg := keen
	cfg.Keys = nil
	s.send(cfg)
	harness.Eventually(t, wait, "the log says so", func() (bool, string) {
		return strings.Contains(s.log.String(), "no webhook secrets"), s.log.String()
	})
	if d := get[ledger.Delivery](t)(s.ledger.GetDelivery(t.Context(), id)); d.Status != ledger.DeliveryWaiting || d.Attempts != 0 {
		t.Errorf("the delivery is %s after %d attempts", d.Status, d.Attempts)
	}
	s.send(keen) // a process that has one
	s.await(ledger.DeliveryDelivered, id)
}

func TestTheMetricsTellHowManyDeliveriesWait(t *testing.T) {
	s := openShop(t)
	s.sale("s", "http://127.0.0.1:1")
	ids := s.orders("s", 3)
	db := get[*sql.DB](t)(sql.Open("mysql", s.dsn))
	defer db.Close()
	get[sql.Result](t)(db.ExecContext(t.Context(), "UPDATE deliveries SET status = 'parked' WHERE order_id = ?", ids[0]))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { must(t, fulfil.NewBacklog(s.ledger, s.metrics.Waiting, s.metrics.Parked).Run(ctx)) })
	harness.Eventually(t, wait, "both gauges are set", func() (bool, string) {
		waiting, parked := testutil.ToFloat64(s.metrics.Waiting), testutil.ToFloat64(s.metrics.Parked)
		return waiting == 2 && parked == 1, fmt.Sprint(waiting, parked)
	})
	stop()
	running.Wait()
}

func TestSenderRefusesSettingsOutOfRange(t *testing.T) {
	for name, cfg := range map[string]fulfil.Config{
		"Workers":       {Workers: 1001},
		"PerHost":       {PerHost: -1},
		"HostsPage":     {HostsPage: ledger.PageMax + 1},
		"Timeout":       {Timeout: 2 * time.Minute},
		"SlowAfter":     {SlowAfter: time.Microsecond},
		"RetryBase":     {RetryBase: -1},
		"RetryMax":      {RetryBase: time.Minute, RetryMax: time.Second},
		"Poll":          {Poll: time.Hour},
		"RecordTimeout": {RecordTimeout: time.Millisecond},
		"DrainLimit":    {DrainLimit: time.Hour},
		"key":           {Keys: [][]byte{nil}},
	} {
		_, err := fulfil.New(cfg, fulfil.Parts{})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s out of range: the error is %v", name, err)
		}
	}
}
