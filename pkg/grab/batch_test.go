package grab_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// gateway is a front with a key for gateways.
var gateway = config.GrabFront{GatewayKeys: []string{"the-key-of-another-gateway", "the-key-of-the-gateway"}}

// one is a grab of a batch.
type one struct {
	User  string  `json:"user"`
	Key   string  `json:"idempotency_key,omitempty"`
	IP    string  `json:"ip,omitempty"`
	Items []order `json:"items,omitempty"`
}

type order struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// send sends a body to the batch endpoint.
func (c *counter) send(t *testing.T, body string) (int, http.Header, map[string]any) {
	t.Helper()
	return c.call(t, "POST", "/v1/sales/"+c.sale.ID+"/grabs:batch", body, http.Header{"Authorization": {"Bearer the-key-of-the-gateway"}})
}

// batch sends grabs, which must be taken, and returns the results.
func (c *counter) batch(t *testing.T, grabs ...one) []map[string]any {
	t.Helper()
	body, err := json.Marshal(map[string]any{"grabs": grabs})
	if err != nil {
		t.Fatal(err)
	}
	status, _, answer := c.send(t, string(body))
	if status != http.StatusOK {
		t.Fatalf("a batch of %d grabs: %d %v", len(grabs), status, answer)
	}
	results := make([]map[string]any, 0, len(grabs))
	for _, r := range answer["results"].([]any) {
		results = append(results, r.(map[string]any))
	}
	if len(results) != len(grabs) {
		t.Fatalf("%d results for %d grabs", len(results), len(grabs))
	}
	return results
}

func TestEveryGrabOfABatchIsAnsweredAsIfItHadComeAlone(t *testing.T) {
	s := openShop(t, 2, 1)
	c := s.open(t, config.GrabTuning{}, gateway)
	results := c.batch(t, one{User: "ann", Key: "a"}, one{User: "bob", Key: "b", Items: []order{{"A", 1}}})
	for i, user := range []string{"ann", "bob"} {
		status, _, alone := c.grabs(t, as(user, "Idempotency-Key", user[:1]))
		alone["status"], alone["replayed"] = float64(status), false
		if !maps.EqualFunc(results[i], alone, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("%s in a batch: %v\nalone: %v", user, results[i], alone)
		}
	}
	results = c.batch(t, one{User: "ann", Key: "a"}, one{User: "cat"}, one{User: "bob", Key: "other"})
	if got := results[0]; got["status"] != 201.0 || got["outcome"] != "won" || got["replayed"] != true {
		t.Errorf("ann again: %v", got)
	}
	for i, header := range map[int]http.Header{1: as("cat"), 2: as("bob", "Idempotency-Key", "other")} {
		status, _, alone := c.grabs(t, header)
		if status != http.StatusConflict {
			t.Fatalf("alone: %d %v", status, alone)
		}
		delete(alone, "type")
		delete(alone, "title")
		if !maps.EqualFunc(results[i], alone, func(a, b any) bool { return a == b }) {
			t.Errorf("result %d in a batch: %v\nalone: %v", i, results[i], alone)
		}
	}
	if got := c.metric(t, "doorbuster_grab_gateway_batch_size"); got != 5 {
		t.Errorf("counted %v grabs of batches", got)
	}
}

func TestOnlyAGatewaysKeyOpensTheBatchEndpoint(t *testing.T) {
	s := openShop(t, 10, 1)
	keyed := s.open(t, config.GrabTuning{}, gateway)
	keyless := s.serve(t, config.GrabTuning{}, config.GrabFront{})
	path := "/v1/sales/" + s.sale.ID + "/grabs:batch"
	for _, header := range []http.Header{
		{}, as("ann"), {"Authorization": {"Bearer "}}, {"Authorization": {"Bearer the-key-of-nobody-at-all"}}, {"Authorization": {"Basic the-key-of-the-gateway"}},
	} {
		if status, _, body := keyed.call(t, "POST", path, `{"grabs":[{"user":"ann"}]}`, header); status != http.StatusUnauthorized || body["code"] != "unauthorized" {
			t.Errorf("%v: %d %v", header, status, body)
		}
	}
	if status, _, body := keyless.send(t, `{"grabs":[{"user":"ann"}]}`); status != http.StatusUnauthorized {
		t.Errorf("where no key is configured: %d %v", status, body)
	}
	if status, _, body := keyed.call(t, "POST", path, `{"grabs":[{"user":"ann"}]}`, http.Header{"Authorization": {"Bearer the-key-of-another-gateway"}}); status != http.StatusOK {
		t.Errorf("the other gateway: %d %v", status, body)
	}
	if granted := s.inRedis(t); len(granted) != 1 {
		t.Errorf("%d grants were made", len(granted))
	}
}

func TestAMalformedGrabRefusesItsWholeBatchBeforeAnythingIsDecided(t *testing.T) {
	s := openShop(t, 10, 1)
	s.sale.Items = append(s.sale.Items, sale.Item{SKU: "B", Stock: 10})
	s.load(t, map[string]int64{"A": 10, "B": 10})
	c := s.open(t, config.GrabTuning{}, gateway)
	good := `{"user":"ann","items":[{"sku":"A","quantity":1}]}`
	many := strings.Repeat(good+",", 500) + good
	for _, tc := range []struct {
		name, body  string
		status      int
		code, field string
	}{
		{"no body", ``, 400, "bad_request", ""},
		{"no grabs", `{}`, 400, "invalid_field", "grabs"},
		{"an empty list", `{"grabs":[]}`, 400, "invalid_field", "grabs"},
		{"no list", `{"grabs":{}}`, 400, "invalid_field", "grabs"},
		{"501 grabs", `{"grabs":[` + many + `]}`, 400, "invalid_field", "grabs"},
		{"an unknown field beside them", `{"grabs":[` + good + `],"sale":"x"}`, 400, "invalid_field", "sale"},
		{"an unknown field", `{"grabs":[` + good + `,{"user":"bob","usr":"bob"}]}`, 400, "invalid_field", "grabs[1].usr"},
		{"a wrong type", `{"grabs":[` + good + `,` + good + `,{"user":7}]}`, 400, "invalid_field", "grabs[2].user"},
		{"no object", `{"grabs":["ann"]}`, 400, "invalid_field", "grabs[0]"},
		{"null", `{"grabs":[` + good + `,null]}`, 400, "invalid_field", "grabs[1].user"},
		{"no user", `{"grabs":[` + good + `,{"items":[{"sku":"A","quantity":1}]}]}`, 400, "invalid_field", "grabs[1].user"},
		{"a user with a space", `{"grabs":[` + good + `,{"user":"a b","items":[{"sku":"A","quantity":1}]}]}`, 400, "invalid_field", "grabs[1].user"},
		{"a long user", `{"grabs":[` + good + `,{"user":"` + strings.Repeat("u", 129) + `"}]}`, 400, "invalid_field", "grabs[1].user"},
		{"an empty key", `{"grabs":[` + good + `,{"user":"bob","idempotency_key":""}]}`, 400, "invalid_field", "grabs[1].idempotency_key"},
		{"a long key", `{"grabs":[` + good + `,{"user":"bob","idempotency_key":"` + strings.Repeat("k", 65) + `"}]}`, 400, "invalid_field", "grabs[1].idempotency_key"},
		{"no address", `{"grabs":[` + good + `,{"user":"bob","ip":"localhost"}]}`, 400, "invalid_field", "grabs[1].ip"},
		{"an address with a port", `{"grabs":[` + good + `,{"user":"bob","ip":"203.0.113.1:80"}]}`, 400, "invalid_field", "grabs[1].ip"},
		{"an empty address", `{"grabs":[` + good + `,{"user":"bob","ip":""}]}`, 400, "invalid_field", "grabs[1].ip"},
		{"empty items", `{"grabs":[` + good + `,{"user":"bob","items":[]}]}`, 400, "invalid_field", "grabs[1].items"},
		{"no items of a sale of several", `{"grabs":[` + good + `,{"user":"bob"}]}`, 400, "invalid_field", "grabs[1].items"},
		{"an unknown SKU", `{"grabs":[` + good + `,{"user":"bob","items":[{"sku":"A","quantity":1},{"sku":"Z","quantity":1}]}]}`, 400, "invalid_field", "grabs[1].items[1].sku"},
		{"a SKU twice", `{"grabs":[` + good + `,{"user":"bob","items":[{"sku":"A","quantity":1},{"sku":"A","quantity":1}]}]}`, 400, "invalid_field", "grabs[1].items[1].sku"},
		{"no quantity", `{"grabs":[` + good + `,{"user":"bob","items":[{"sku":"A"}]}]}`, 400, "invalid_field", "grabs[1].items[0].quantity"},
		{"a text for a quantity", `{"grabs":[` + good + `,{"user":"bob","items":[{"sku":"A","quantity":"1"}]}]}`, 400, "invalid_field", "grabs[1].items.quantity"},
		{"more than 1 MiB", `{"grabs":["` + strings.Repeat("x", 1<<20) + `"]}`, 413, "body_too_large", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, _, got := c.send(t, tc.body)
			field, _ := got["field"].(string)
			if status != tc.status || got["code"] != tc.code || field != tc.field {
				t.Errorf("want %d %s %q, got %d %v", tc.status, tc.code, tc.field, status, got)
			}
		})
	}
	if status, _, body := c.call(t, "POST", "/v1/sales/none/grabs:batch", `{"grabs":[`+good+`]}`, http.Header{"Authorization": {"Bearer the-key-of-the-gateway"}}); status != http.StatusNotFound {
		t.Errorf("an unknown sale: %d %v", status, body)
	}
	if granted := s.inRedis(t); len(granted) != 0 {
		t.Errorf("%d grants were made", len(granted))
	}
}

func TestTheGrabsOfOneUserAreDecidedInTheirOrder(t *testing.T) {
	s := openShop(t, 1000, 1)
	c := s.open(t, config.GrabTuning{}, gateway)
	const users, each = 60, 8
	var grabs []one
	for i := range users * each {
		grabs = append(grabs, one{User: "user-" + itoa(i%users), Key: "key-" + itoa(i/users)})
	}
	results := c.batch(t, grabs...)
	for i, got := range results {
		first := results[i%users]
		switch {
		case i < users && (got["outcome"] != "won" || got["order_id"] != sale.OrderID(s.sale.ID, grabs[i].User, "key-0")):
			t.Errorf("the first grab of %s: %v", grabs[i].User, got)
		case i >= users && (got["outcome"] != "already_grabbed" || got["order_id"] != first["order_id"]):
			t.Errorf("grab %d of %s: %v after %v", i/users, grabs[i].User, got, first)
		}
	}
	twice := c.batch(t, one{User: "zoe", Key: "k"}, one{User: "zoe", Key: "k"})
	if twice[0]["replayed"] != false || twice[1]["replayed"] != true || twice[0]["order_id"] != twice[1]["order_id"] {
		t.Errorf("the same key twice in a batch: %v", twice)
	}
	s.requireSettled(t, users+1)
}

func TestARepeatedBatchGetsTheSameOrders(t *testing.T) {
	s := openShop(t, 100, 1)
	c := s.open(t, config.GrabTuning{}, gateway)
	other := s.serve(t, config.GrabTuning{}, gateway)
	var grabs []one
	for i := range 150 {
		grabs = append(grabs, one{User: "user-" + itoa(i), Key: "k"})
	}
	first := c.batch(t, grabs...)
	again := other.batch(t, grabs...)
	won := 0
	for i := range grabs {
		if first[i]["outcome"] == "won" {
			won++
		}
		if first[i]["outcome"] != again[i]["outcome"] || first[i]["order_id"] != again[i]["order_id"] {
			t.Errorf("%s: first %v, again %v", grabs[i].User, first[i], again[i])
		}
	}
	if won != 100 {
		t.Errorf("%d won, want 100", won)
	}
	s.requireSettled(t, 100)
}

func TestBatchesAndSingleGrabsOfACrowdSellExactlyTheStock(t *testing.T) {
	s := openShop(t, 300, 1)
	processes := []*counter{s.open(t, config.GrabTuning{}, gateway), s.serve(t, config.GrabTuning{}, gateway)}
	var mu sync.Mutex
	outcomes := map[any]int{}
	orders := map[any]int{}
	heard := func(body map[string]any) {
		mu.Lock()
		defer mu.Unlock()
		outcomes[body["outcome"]]++
		if body["outcome"] == "won" {
			orders[body["order_id"]]++
		}
	}
	var crowd sync.WaitGroup
	for gatewayOf := range 6 {
		crowd.Go(func() {
			var grabs []one
			for i := range 100 {
				grabs = append(grabs, one{User: "user-" + itoa(gatewayOf*100+i), Key: "k"})
			}
			for _, body := range processes[gatewayOf%2].batch(t, grabs...) {
				heard(body)
			}
		})
	}
	for i := range 100 {
		crowd.Go(func() {
			_, _, body := processes[i%2].grabs(t, as("single-"+itoa(i), "Idempotency-Key", "k"))
			heard(body)
		})
	}
	crowd.Wait()
	if outcomes["won"] != 300 || outcomes["sold_out"] != 400 || len(orders) != 300 {
		t.Errorf("outcomes %v, %d distinct orders; want 300 won and 400 sold out", outcomes, len(orders))
	}
	s.requireSettled(t, 300)
}

func TestTheRatesOfUsersHoldInABatchAndThoseOfAddressesWhereTheyAreGiven(t *testing.T) {
	s := openShop(t, 100, 100)
	c := s.open(t, config.GrabTuning{UserRate: 0.01, UserBurst: 2, IPRate: 0.01, IPBurst: 3}, gateway)
	var codes []any
	results := c.batch(t,
		one{User: "ann"}, one{User: "bob", IP: "203.0.113.1"}, one{User: "ann"}, one{User: "ann"}, // the third is too many of ann
		one{User: "cat", IP: "203.0.113.1"}, one{User: "dan", IP: "::ffff:203.0.113.1"}, one{User: "eve", IP: "203.0.113.1"}, // the fourth from there
		one{User: "eve"}, one{User: "eve", IP: "203.0.113.2"}, // eve has not used her own rate up
	)
	for _, r := range results {
		codes = append(codes, r["status"])
		if r["status"] == 429.0 && (r["retry_after"] != 100.0 || r["code"] != "rate_limited" || r["detail"] == "") {
			t.Errorf("slowed down: %v", r)
		}
	}
	if want := []any{201.0, 201.0, 201.0, 429.0, 201.0, 201.0, 429.0, 201.0, 201.0}; !slices.Equal(codes, want) {
		t.Errorf("statuses %v, want %v", codes, want)
	}
	if results[3]["policy"] != "user" || results[6]["policy"] != "ip" {
		t.Errorf("slowed down by %v and %v", results[3]["policy"], results[6]["policy"])
	}
	addresses := map[string]bool{}
	for _, g := range s.inStream(t) {
		addresses[g.User+" "+g.IP] = true
	}
	if !addresses["bob 203.0.113.1"] || !addresses["dan 203.0.113.1"] || !addresses["ann "] {
		t.Errorf("the grants were made from %v", addresses)
	}
}

func TestEachGrabOfABatchCountsInFlight(t *testing.T) {
	s := openShop(t, 100, 1)
	c := s.open(t, config.GrabTuning{InFlightMax: 3}, gateway)
	s.redis.Pause()
	var grabs []one
	for i := range 50 {
		grabs = append(grabs, one{User: "user-" + itoa(i)})
	}
	full := 0
	for _, r := range c.batch(t, grabs...) {
		if r["status"] != 503.0 || r["retry_after"] != 1.0 {
			t.Errorf("while Redis is frozen: %v", r)
		}
		if r["reason"] == "too many requests in flight" {
			full++
		}
	}
	if full != 47 {
		t.Errorf("%d of 50 were refused beyond the 3 in flight", full)
	}
	s.redis.Resume()
	harness.Eventually(t, 10*time.Second, "one more is decided", func() (bool, string) {
		got := c.batch(t, one{User: "ann", Key: "k"})
		return got[0]["outcome"] == "won", fmt.Sprint(got)
	})
}

func TestALimitPerAddressHoldsInABatchToo(t *testing.T) {
	s := openShop(t, 100, 10)
	s.sale.Limits = []sale.Limit{{Scope: sale.ScopeIP, Window: sale.WindowSale, Max: 2}}
	c := s.open(t, config.GrabTuning{}, gateway)
	won, refused := 0, 0
	for _, r := range c.batch(t, one{User: "a", IP: "203.0.113.1"}, one{User: "b", IP: "203.0.113.1"}, one{User: "c", IP: "203.0.113.1"}, one{User: "d", IP: "203.0.113.2"}) {
		switch {
		case r["outcome"] == "won":
			won++
		case r["outcome"] == "limit_exceeded" && r["limit"] == "ip_sale":
			refused++
		}
	}
	if won != 3 || refused != 1 {
		t.Errorf("%d won and %d were over the limit of two per address", won, refused)
	}
}

func TestBatchesSurviveAChangingFlowControl(t *testing.T) {
	s := openShop(t, 200, 1)
	c := s.open(t, config.GrabTuning{}, gateway)
	var operator sync.WaitGroup
	over := make(chan struct{})
	operator.Go(func() {
		for i := int64(1); ; i++ {
			select {
			case <-over:
				return
			default:
				most := 1 + i%100
				s.control(t, stream.FlowControl{PerUser: &stream.Rate{Rate: float64(1 + i%50), Burst: 1}, InFlightMax: &most})
			}
		}
	})
	var crowd sync.WaitGroup
	for side := range 4 {
		crowd.Go(func() {
			waiting := map[string]bool{}
			for i := range 100 {
				waiting["user-"+itoa(side*100+i)] = true
			}
			for try := 0; len(waiting) > 0 && try < maxTries; try++ {
				var grabs []one
				for user := range waiting {
					grabs = append(grabs, one{User: user, Key: "k"})
				}
				for i, r := range c.batch(t, grabs...) {
					if r["outcome"] == "won" || r["outcome"] == "sold_out" {
						delete(waiting, grabs[i].User)
					}
				}
			}
			if len(waiting) > 0 {
				t.Errorf("%d users were never answered", len(waiting))
			}
		})
	}
	crowd.Wait()
	close(over)
	operator.Wait()
	s.requireSettled(t, 200)
}
