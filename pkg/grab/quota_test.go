package grab_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// openQuota makes the shop's sale that of a quota of 10 units a day, loaded, which all
// grab services get to know.
func openQuota(t *testing.T) *shop {
	t.Helper()
	s := openShop(t, 1, 0)
	quota := sale.Quota{Key: "api", Limit: 10, Window: sale.WindowDay, Timezone: "UTC"}
	def := quota.Sale()
	def.Revision = 1
	s.sale = &def
	s.load(t, map[string]int64{sale.QuotaSKU: sale.Unlimited})
	if err := s.stream.PutSale(t.Context(), s.sale); err != nil {
		t.Fatal(err)
	}
	return s
}

// backend opens a counter that knows the quota, with these settings.
func (s *shop) backend(t *testing.T, quotas config.Quotas) *counter {
	t.Helper()
	ordinary := *s.sale
	ordinary.ID, ordinary.Rules = "ordinary", sale.Rules{}
	quota := s.sale
	s.sale = &ordinary
	c := s.open(t, config.GrabTuning{}, gateway)
	s.sale = quota
	if quotas != (config.Quotas{}) {
		s.sale = &ordinary
		c = s.serveQuotas(t, config.GrabTuning{}, gateway, quotas)
		s.sale = quota
	}
	return c
}

// deduct posts a deduction with a backend's key, and returns the answer as "STATUS
// allowed remaining".
func (c *counter) deduct(t *testing.T, quota, idempotency, body string) (text string, answer map[string]any) {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer the-key-of-the-gateway"}}
	if idempotency != "" {
		header["Idempotency-Key"] = []string{idempotency}
	}
	status, _, answer := c.call(t, "POST", "/v1/quotas/"+quota+"/deductions", body, header)
	return fmt.Sprint(status, " ", answer["allowed"], " ", answer["remaining"]), answer
}

func TestABackendHearsWhatRemainsOfAQuota(t *testing.T) {
	s := openQuota(t)
	c := s.backend(t, config.Quotas{})
	expect := func(want, idempotency, body string) map[string]any {
		t.Helper()
		text, answer := c.deduct(t, "api", idempotency, body)
		if text != want {
			t.Errorf("%s: %s %v, want %s", body, text, answer, want)
		}
		return answer
	}
	first := expect("200 true 6", "k1", `{"quantity":4}`)
	if id := fmt.Sprint(first["deduction_id"]); id != sale.OrderID(s.sale.ID, sale.QuotaUser, "k1") {
		t.Errorf("the deduction is %s", id)
	}
	if again := expect("200 true 6", "k1", `{"quantity":4}`); again["deduction_id"] != first["deduction_id"] {
		t.Errorf("again: %v", again)
	}
	if refused := expect("200 false 6", "", `{"quantity":7}`); len(refused) != 2 {
		t.Errorf("a refusal is %v", refused)
	}
	expect("200 true 0", "", `{"quantity":6}`)
	for result, want := range map[string]float64{"allowed": 3, "refused": 1, "unknown_quota": 0, "undecided": 0} {
		if got := c.metric(t, "doorbuster_grab_deductions_total", result); got != want {
			t.Errorf("%s: counted %v, want %v", result, got, want)
		}
	}
	for _, body := range []string{`{}`, `{"quantity":0}`, `{"quantity":1000001}`, `{"quantity":"1"}`, `{"units":1}`, ``} {
		if text, answer := c.deduct(t, "api", "", body); text[:3] != "400" {
			t.Errorf("%s: %s %v", body, text, answer)
		}
	}
	for _, header := range []http.Header{{}, as("ann"), {"Authorization": {"Bearer the-key-of-nobody-at-all"}}} {
		if status, _, _ := c.call(t, "POST", "/v1/quotas/api/deductions", `{"quantity":1}`, header); status != http.StatusUnauthorized {
			t.Errorf("%v: %d, want 401", header, status)
		}
	}
}

func TestAQuotaIsNoSaleForTheCrowd(t *testing.T) {
	s := openQuota(t)
	c := s.backend(t, config.Quotas{})
	if text, _ := c.deduct(t, "api", "", `{"quantity":1}`); text != "200 true 9" {
		t.Fatal(text)
	}
	for _, path := range []string{"/v1/sales/quota_api/grabs", "/v1/sales/quota_api"} {
		method := map[bool]string{true: "POST", false: "GET"}[path[len(path)-1] == 's']
		if status, _, _ := c.call(t, method, path, "", as("ann")); status != http.StatusNotFound {
			t.Errorf("%s %s: %d, want 404", method, path, status)
		}
	}
}

func TestTheConfigurationAnswersForQuotasThatNobodyMade(t *testing.T) {
	s := openQuota(t)
	for unknown, want := range map[string]string{config.UnknownAllow: "200 true -1", config.UnknownRefuse: "200 false 0"} {
		c := s.backend(t, config.Quotas{Unknown: unknown, LoadWait: time.Second})
		text, answer := c.deduct(t, "nobody", "k", `{"quantity":5}`)
		if text != want || answer["deduction_id"] != nil {
			t.Errorf("%s: %s %v, want %s", unknown, text, answer, want)
		}
		if got := c.metric(t, "doorbuster_grab_deductions_total", "unknown_quota"); got != 1 {
			t.Errorf("%s: counted %v", unknown, got)
		}
		if text, answer := c.deduct(t, "no.body", "k", `{"quantity":5}`); text[:3] != "400" || answer["field"] != "key" {
			t.Errorf("a key that can't be: %s %v", text, answer)
		}
	}
}

func TestADeductionWaitsBrieflyForItsQuotaToBeLoaded(t *testing.T) {
	s := openQuota(t)
	c := s.backend(t, config.Quotas{Unknown: config.UnknownRefuse, LoadWait: 200 * time.Millisecond})
	if err := s.store.Close(t.Context(), s.sale.ID); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	text, answer := c.deduct(t, "api", "k", `{"quantity":5}`)
	if took := time.Since(begin); text[:3] != "503" || answer["code"] != "not_loaded" || took < 200*time.Millisecond {
		t.Errorf("nobody loads it: %s %v after %s", text, answer, took)
	}

	patient := s.backend(t, config.Quotas{Unknown: config.UnknownRefuse, LoadWait: time.Minute})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if text, answer := patient.deduct(t, "api", "k", `{"quantity":5}`); text != "200 true 5" {
			t.Errorf("it is loaded meanwhile: %s %v", text, answer)
		}
	})
	harness.Eventually(t, 10*time.Second, "the deduction found it not loaded", func() (bool, string) {
		return patient.metric(t, "doorbuster_grab_not_loaded_total") > 0, ""
	})
	s.load(t, map[string]int64{sale.QuotaSKU: sale.Unlimited})
	waiting.Wait()
}

// Batchers end when nobody asks, and the batches of the next one are counted on:
// were they numbered again, the stream would take them for known ones.
func TestAnIdleBatcherEndsAndTheNextOneCountsOn(t *testing.T) {
	s := openShop(t, 100, 0)
	engine, err := grab.New(grab.Config{
		Process: grab.NewProcess(), LeaseTTL: 100 * time.Millisecond, BatcherIdle: 50 * time.Millisecond, SoldOutTTL: -1,
	}, s.store, s.stream, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine.Put(s.sale)
	run(t, engine)
	for n := range 4 {
		a, err := engine.Grab(t.Context(), grab.Request{SaleID: s.sale.ID, User: "u", Key: itoa(n)})
		if err != nil || a.Outcome != sale.Won {
			t.Fatalf("grab %d: %+v, %v", n, a, err)
		}
		if _, there := s.inStream(t)[a.OrderID]; !there {
			t.Fatalf("grab %d was won and is not in the stream", n)
		}
		harness.Eventually(t, 10*time.Second, "its batcher has ended", func() (bool, string) {
			left := engine.Selling()
			return left == 0, itoa(left)
		})
	}
	s.requireSettled(t, 4)
}

// Grabs come just as batchers end: each is won, and in the stream.
func TestNoGrabIsLostBetweenTwoBatchers(t *testing.T) {
	s := openShop(t, sale.Unlimited, 0)
	engine, err := grab.New(grab.Config{
		Process: grab.NewProcess(), LeaseTTL: 4 * time.Millisecond, BatcherIdle: time.Microsecond, SoldOutTTL: -1,
	}, s.store, s.stream, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine.Put(s.sale)
	run(t, engine)
	var grabbing sync.WaitGroup
	const users, each = 4, 25
	for u := range users {
		grabbing.Go(func() {
			for n := range each {
				a, err := engine.Grab(t.Context(), grab.Request{SaleID: s.sale.ID, User: itoa(u), Key: itoa(n)})
				if err != nil || a.Outcome != sale.Won {
					t.Errorf("grab %d of %d: %+v, %v", n, u, a, err)
				}
				if n%2 == u%2 {
					harness.Eventually(t, 10*time.Second, "the batcher has ended", func() (bool, string) { return engine.Selling() == 0, "" })
				}
			}
		})
	}
	grabbing.Wait()
	s.requireSettled(t, users*each)
}

// run runs an engine until the test ends.
func run(t testing.TB, engine *grab.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	harness.Eventually(t, 5*time.Second, "the engine runs", func() (bool, string) { return engine.Ready(), "" })
}
