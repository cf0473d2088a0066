package load

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// shop is a service that answers as the test says.
func shop(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func won(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"outcome":"won","order_id":"o-%s"}`, r.Header.Get("Idempotency-Key"))
}

func refuse(w http.ResponseWriter, status int, outcome string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q,"outcome":%q}`, outcome, outcome)
}

func run(t *testing.T, cfg Config) Report {
	t.Helper()
	cfg.SaleID = "s"
	report, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestEveryGrabIsSentOnceByItsUserWithItsKey(t *testing.T) {
	var mu sync.Mutex
	users, keys := map[string]int{}, map[string]int{}
	report := run(t, Config{Users: 40, Grabs: 100, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		users[r.Header.Get(web.UserHeader)]++
		keys[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		if r.URL.Path != "/v1/sales/s/grabs" {
			t.Errorf("path %s", r.URL.Path)
		}
		won(w, r)
	})})
	if len(users) != 40 || len(keys) != 100 || report.Requests != 100 {
		t.Errorf("%d users, %d keys, %d requests", len(users), len(keys), report.Requests)
	}
	if report.Outcomes["won"] != 100 || report.DistinctWinners != 40 || len(report.Winners) != 100 || report.Undecided != 0 {
		t.Errorf("report %+v", report)
	}
}

// One connection, and the first request takes its time: whoever was meant to
// begin meanwhile waited, and that counts.
func TestAStallCountsForAllWhoWaited(t *testing.T) {
	const stall = 300 * time.Millisecond
	var first sync.Once
	report := run(t, Config{Users: 10, Rate: 100, Connections: 1, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { <-time.After(stall) })
		won(w, r)
	})})
	// The tenth was meant to begin 90 ms after the first.
	if median := time.Duration(report.Latency["won"].P50); median < stall-100*time.Millisecond {
		t.Errorf("median %s although all waited for a stall of %s", median, stall)
	}
}

func TestArrivalsKeepTheRateWhateverTheService(t *testing.T) {
	start := time.Now()
	var mu sync.Mutex
	var arrived []time.Duration
	run(t, Config{Users: 50, Rate: 500, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived = append(arrived, time.Since(start))
		mu.Unlock()
		<-time.After(50 * time.Millisecond)
		won(w, r)
	})})
	if last := arrived[len(arrived)-1]; last < 98*time.Millisecond {
		t.Errorf("the last of 50 arrived after %s, meant for 98ms", last)
	}
}

func TestARampBeginsSlowlyAndEndsInTime(t *testing.T) {
	start := time.Now()
	s := newSchedule(Config{Grabs: 100, Users: 100, Rate: 10, Ramp: true}, start)
	for grab, want := range map[int]time.Duration{0: 0, 1: time.Second, 25: 5 * time.Second, 100: 10 * time.Second} {
		if got := s.arrival(grab).Sub(start).Round(time.Millisecond); got != want {
			t.Errorf("grab %d is meant to begin after %s, want %s", grab, got, want)
		}
	}
}

func TestUndecidedGrabsComeAgainWithTheSameKeyWhenAsked(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]time.Time{}
	report := run(t, Config{Users: 3, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		seen[key] = append(seen[key], time.Now())
		attempt := len(seen[key])
		mu.Unlock()
		if attempt == 1 {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "not_loaded")
			return
		}
		won(w, r)
	})})
	if len(seen) != 3 || report.Retried != 3 || report.Outcomes["won"] != 3 {
		t.Fatalf("keys %d, report %+v", len(seen), report)
	}
	for key, times := range seen {
		if pause := times[1].Sub(times[0]); len(times) != 2 || pause < time.Second {
			t.Errorf("key %s came %d times, after %s, asked for 1s", key, len(times), pause)
		}
	}
	if report.Latency["not_loaded"].Count != 3 || time.Duration(report.Decision.P50) < time.Second {
		t.Errorf("latencies %+v, decision %+v", report.Latency, report.Decision)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	report := run(t, Config{Users: 2, Retries: 2, URL: shop(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "broken", http.StatusInternalServerError)
	})})
	if report.Requests != 6 || report.Outcomes[ClassFailed] != 2 || report.Problem == "" {
		t.Errorf("report %+v", report)
	}
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	for outcome, status := range map[string]int{"sold_out": 409, "already_grabbed": 409, "limit_exceeded": 409, "paused": 409, "ended": 409, "not_open": 409} {
		report := run(t, Config{Users: 2, URL: shop(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, outcome) })})
		if report.Requests != 2 || report.Outcomes[outcome] != 2 {
			t.Errorf("%s: report %+v", outcome, report)
		}
	}
	report := run(t, Config{Users: 1, URL: shop(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"code":"sale_not_found"}`, http.StatusNotFound)
	})})
	if report.Requests != 1 || report.Outcomes[ClassInvalid] != 1 {
		t.Errorf("unknown sale: report %+v", report)
	}
}

func TestDuplicatesCarryTheSameKey(t *testing.T) {
	var mu sync.Mutex
	keys := map[string]int{}
	report := run(t, Config{Users: 200, Duplicates: 0.5, Seed: 7, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		won(w, r)
	})})
	twice := 0
	for _, n := range keys {
		if n == 2 {
			twice++
		}
	}
	if len(keys) != 200 || twice < 60 || twice > 140 || report.Requests != int64(200+twice) {
		t.Errorf("%d keys, %d of them twice, %d requests", len(keys), twice, report.Requests)
	}
	if report.Outcomes["won"] != 200 || report.Contradictions != 0 || len(report.Winners) != 200 {
		t.Errorf("report %+v", report)
	}
}

// Grabs, double clicks and retries: nothing else was sent.
func TestTheReportAccountsForEveryRequest(t *testing.T) {
	var mu sync.Mutex
	var requests int64
	report := run(t, Config{Users: 100, Duplicates: 0.3, Seed: 7, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests++
		turned := requests <= 40
		mu.Unlock()
		if turned {
			refuse(w, http.StatusServiceUnavailable, "unavailable")
			return
		}
		won(w, r)
	})})
	if report.Requests != requests || report.Doubled == 0 || report.Retried != 40 || report.Requests != 100+report.Doubled+report.Retried {
		t.Errorf("%d requests: report %+v", requests, report)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d requests (%d of them double clicks, 40 retries)", requests, report.Doubled)
	if !strings.Contains(text.String(), want) {
		t.Errorf("%q is missing:\n%s", want, &text)
	}
}

func TestTheSameSeedSendsTheSameCrowd(t *testing.T) {
	crowd := func(seed uint64) map[string]int {
		var mu sync.Mutex
		keys := map[string]int{}
		run(t, Config{Users: 50, Duplicates: 0.3, Seed: seed, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			keys[r.Header.Get("Idempotency-Key")]++
			mu.Unlock()
			won(w, r)
		})})
		return keys
	}
	if first, again, other := crowd(1), crowd(1), crowd(2); !maps.Equal(first, again) || maps.Equal(first, other) {
		t.Errorf("seed 1: %v, then %v; seed 2: %v", first, again, other)
	}
}

func TestTwoOrdersForOneKeyAreAContradiction(t *testing.T) {
	var mu sync.Mutex
	n := 0
	report := run(t, Config{Users: 1, Duplicates: 1, URL: shop(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		n++
		order := n
		mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"outcome":"won","order_id":"o-%d"}`, order)
	})})
	if report.Contradictions != 1 || len(report.Examples) != 1 {
		t.Errorf("report %+v", report)
	}
}

func TestARunEndsWhenItsTimeIsOver(t *testing.T) {
	release := make(chan struct{})
	url := shop(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	start := time.Now()
	report := run(t, Config{Users: 100, Timeout: 200 * time.Millisecond, URL: url})
	if took := time.Since(start); took > 5*time.Second || report.Undecided != 100 {
		t.Errorf("took %s, undecided %d", took, report.Undecided)
	}
}

func TestProgressReachesTheEnd(t *testing.T) {
	var last Progress
	run(t, Config{
		Users: 20, Progress: func(p Progress) { last = p }, ProgressEvery: time.Millisecond,
		URL: shop(t, won),
	})
	if last.Decided != 20 || last.Won != 20 || last.Grabs != 20 {
		t.Errorf("last progress %+v", last)
	}
}

func TestNoCrowdLeavesThisMachineByAccident(t *testing.T) {
	for _, url := range []string{"http://192.0.2.1:8080", "https://shop.example", "http://0.0.0.0:1", "http://127.0.0.1.example:80"} {
		_, err := Run(t.Context(), Config{URL: url, SaleID: "s", Users: 1})
		if !errors.Is(err, ErrRemote) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"", "127.0.0.1:8080", "ftp://127.0.0.1"} {
		if _, err := Run(t.Context(), Config{URL: url, SaleID: "s", Users: 1}); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}

func TestImpossibleCrowdsAreRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no sale":     {},
		"users":       {SaleID: "s", Users: -1},
		"grabs":       {SaleID: "s", Grabs: MaxGrabs + 1},
		"rate":        {SaleID: "s", Rate: -1},
		"duplicates":  {SaleID: "s", Duplicates: 1.1},
		"connections": {SaleID: "s", Connections: MaxConnections + 1},
		"timeout":     {SaleID: "s", Timeout: -1},
		"retries":     {SaleID: "s", Retries: -2},
	} {
		cfg.URL = "http://127.0.0.1:1"
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

func TestLongestPauseIsTheGapAroundALoss(t *testing.T) {
	start := time.Now()
	at := func(ms int) Winner { return Winner{At: start.Add(time.Duration(ms) * time.Millisecond)} }
	report := Report{Winners: []Winner{at(0), at(400), at(1010), at(1020), at(1900), at(1950)}}
	if got := report.LongestPause(start.Add(time.Second)); got != 880*time.Millisecond {
		t.Errorf("longest pause %s", got)
	}
}

func TestItemsAreSentAsAsked(t *testing.T) {
	var mu sync.Mutex
	var body, contentType string
	run(t, Config{Users: 1, Lines: []sale.Line{{SKU: "A", Quantity: 2}}, URL: shop(t, func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, 200)
		n, _ := r.Body.Read(text)
		mu.Lock()
		body, contentType = string(text[:n]), r.Header.Get("Content-Type")
		mu.Unlock()
		won(w, r)
	})})
	if body != `{"items":[{"sku":"A","quantity":2}]}` || contentType != "application/json" {
		t.Errorf("body %s of type %s", body, contentType)
	}
}
