package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/load"
)

func TestAnOperatorRunsASaleFromTheCommandLine(t *testing.T) {
	openShop(t)
	contains(t, "create", succeed(t, "sale", "create", "--id=tv", "--name=Television", "--item=TV:100:19900", "--ends=+2h"), "draft", "TV   100")
	contains(t, "approve", succeed(t, "sale", "approve", "tv"), "open, loaded, generation 1")
	contains(t, "pause", succeed(t, "sale", "pause", "tv"), "paused")
	contains(t, "resume", succeed(t, "sale", "resume", "tv"), "open")

	reportFile := filepath.Join(t.TempDir(), "report.json")
	contains(t, "load", succeed(t, "load", "tv", "--users=500", "--duplicates=0.2", "--json="+reportFile), "100 distinct winners", "sold_out")
	text, err := os.ReadFile(reportFile)
	must(t, err)
	var report load.Report
	must(t, json.Unmarshal(text, &report))
	if report.Outcomes["won"] != 100 || report.Outcomes["sold_out"] != 400 || report.Latency["won"].P99 == 0 {
		t.Errorf("report %s", text)
	}

	harness.Eventually(t, 30*time.Second, "all orders written", func() (bool, string) {
		text := succeed(t, "sale", "orders", "tv", "--limit=0")
		return strings.Count(text, "pending_payment") == 100, text
	})
	contains(t, "orders", succeed(t, "sale", "orders", "tv", "--limit=1", "--status=pending_payment"), "1 TV")
	if text := succeed(t, "sale", "orders", "tv", "--limit=7"); strings.Count(text, "\n") != 8 {
		t.Errorf("a limit of 7 shows:\n%s", text)
	}
	contains(t, "flows", succeed(t, "sale", "flows", "tv", "--limit=1"), "grab", "100", "-1", "99")
	contains(t, "dead letters", succeed(t, "sale", "dead-letters", "tv"), "ORDER")

	contains(t, "adjust up", succeed(t, "sale", "adjust", "tv", "TV", "5", "--reason=found more", "--key=a1"), "+5 applied, stock 100 -> 105")
	contains(t, "adjust again", succeed(t, "sale", "adjust", "tv", "TV", "5", "--reason=found more", "--key=a1"), "done before")
	contains(t, "adjust down", succeed(t, "sale", "adjust", "tv", "TV", "--reason=broken", "--", "-8"), "-5 applied", "3 could not be taken")
	code, stdout, _ := command(t, "sale", "adjust", "tv", "TV", "-10", "--reason", "all are sold")
	if code != exitNo || !strings.Contains(stdout, "+0 applied") || !strings.Contains(stdout, "10 could not be taken") {
		t.Errorf("nothing to take: exit code %d: %s", code, stdout)
	}

	contains(t, "unlimited", succeed(t, "sale", "adjust", "tv", "TV", "--stock=unlimited", "--reason=more come"), "TV of sale tv: applied, stock 100 -> unlimited")
	contains(t, "show unlimited", succeed(t, "sale", "show", "tv"), "TV   unlimited  unlimited")
	contains(t, "verify unlimited", succeed(t, "verify", "tv"), "TV=unlimited")
	contains(t, "a bound", succeed(t, "sale", "adjust", "tv", "TV", "--stock=40", "--reason=enough"), "stock unlimited -> 100, 60 more than asked for")

	contains(t, "verify", succeed(t, "verify", "tv"), "0 violated")
	contains(t, "reconcile", succeed(t, "reconcile", "tv"), "healthy")
	contains(t, "reconcile by force", succeed(t, "reconcile", "tv", "--force"), "restored", "of 100 buyers")
	contains(t, "list", succeed(t, "sale", "list"), "tv", "Television", "100")
	contains(t, "end", succeed(t, "sale", "end", "tv"), "ended")
	var listed []saleView
	must(t, json.Unmarshal([]byte(succeed(t, "sale", "list", "--json")), &listed))
	if len(listed) != 1 || listed[0].ID != "tv" || listed[0].Items[0].Sold != 100 {
		t.Errorf("listed %+v", listed)
	}
}

func TestAnOperatorChangesALiveSaleFromTheCommandLine(t *testing.T) {
	s := openShop(t)
	contains(t, "create", succeed(t, "sale", "create", "--id=tv", "--name=Television", "--item=TV:100", "--per-user-limit=0", "--limit=user:day:2",
		"--limit=sale:month:50", "--rate-limit=1000", "--no-regrab", "--approve"),
		"no limit per user", "time zone UTC", "limit user_day: at most 2", "limit sale_month: at most 50", "at most 1000 grabs per second", "may not grab them again")
	contains(t, "change", succeed(t, "sale", "change", "tv", "--limit=user:day:1", "--limit=sale:month:60", "--regrab", "--per-user-limit=3",
		"--rate-limit=0", "--ends=+3h", "--payment-window=5m", "--reason=slow sale"), "limit user_day: at most 1", "at most 60", "at most 3 per user", "5m0s to pay")
	contains(t, "pause", succeed(t, "sale", "pause", "tv", "--reason=a complaint"), "paused")
	contains(t, "resume", succeed(t, "sale", "resume", "tv"), "open")
	contains(t, "history", succeed(t, "sale", "changes", "tv"), "limits.user_day.max", "limits.sale_month.max", "slow sale", "a complaint", "regrab_after_cancel", "false")
	order := s.grab(t, "tv", "ann", "k")
	harness.Eventually(t, 30*time.Second, "the counter's log", func() (bool, string) {
		text := succeed(t, "sale", "flows", "tv", "--order="+order)
		return strings.Contains(text, "user_day/") && strings.Contains(text, "sale_month/") && strings.Contains(text, " TV "), text
	})
	contains(t, "log", succeed(t, "sale", "flows", "tv", "--counter=sale_month/"+time.Now().UTC().Format("2006-01")+"/"), "grab", order)
	for want, args := range map[string][]string{
		"sale_not_draft (409) limits":    {"sale", "change", "tv", "--no-limits"},
		"must be SCOPE:WINDOW:MAX":       {"sale", "change", "tv", "--limit=user:day"},
		"stock_limited (409)":            {"sale", "adjust", "tv", "TV", "--stock=5", "--reason=r"},
		"give at least one thing":        {"sale", "change", "tv", "--reason=r"},
		"give either the units":          {"sale", "adjust", "tv", "TV", "--reason=r"},
		"a number of units or unlimited": {"sale", "adjust", "tv", "TV", "--stock=many", "--reason=r"},
	} {
		if code, _, stderr := command(t, args...); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}

func TestAnOperatorDealsWithOrdersFromTheCommandLine(t *testing.T) {
	s := openShop(t)
	succeed(t, "sale", "create", "--id=tv", "--name=Television", "--item=TV:100:19900", "--per-user-limit=3", "--approve")
	bought := func(user string) string {
		order := s.grab(t, "tv", user, "k")
		harness.Eventually(t, 30*time.Second, "the order is written", func() (bool, string) {
			text := succeed(t, "order", "show", order)
			return strings.Contains(text, "pending_payment"), text
		})
		return order
	}
	paid, cancelled := bought("ann"), bought("bob")
	contains(t, "show", succeed(t, "order", "show", paid), paid, "of user ann in sale tv", "TV   1         0         19900")
	contains(t, "pay", succeed(t, "order", "pay", paid), "paid")
	contains(t, "return", succeed(t, "order", "return", paid, "TV:1", "--id=r1", "--reason=too large"), "TV   1         1")
	contains(t, "return again", succeed(t, "order", "return", paid, "TV:1", "--id=r1", "--json"), `"returned": 1`)
	contains(t, "cancel", succeed(t, "order", "cancel", cancelled, "--reason=by phone"), "cancelled (admin)")
	for want, args := range map[string][]string{
		"return_exceeds_order (409)": {"order", "return", paid, "TV:1", "--id=r2"},
		"order_cancelled (409): the order was cancelled; a late payment is noted and has to be refunded": {"order", "pay", cancelled},
		"order_not_cancellable (409)": {"order", "cancel", paid},
		"must be SKU:QUANTITY":        {"order", "return", paid, "TV", "--id=r2"},
		"order_not_found (404)":       {"order", "show", "nothing"},
	} {
		if code, _, stderr := command(t, args...); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
	contains(t, "a late payment", succeed(t, "order", "show", cancelled), "to be refunded")
	contains(t, "verify", succeed(t, "verify", "tv"), "0 violated")
}

func TestWhatTheAPIRefusesIsTold(t *testing.T) {
	openShop(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"sale", "show", "nothing"}, "sale_not_found (404)"},
		{[]string{"sale", "create", "--name=x", "--item=A:-2"}, "invalid_field (400) items[0].stock"},
		{[]string{"sale", "create", "--name=x", "--item=A"}, "must be SKU:STOCK"},
		{[]string{"sale", "create", "--name=x", "--item=A:1", "--starts=soon"}, "--starts: \"soon\" must be now"},
		{[]string{"sale", "list", "--admin-key=the-wrong-key-it-is"}, "unauthorized (401)"},
		{[]string{"sale", "list", "--admin-key="}, "DOORBUSTER_ADMIN_KEY"},
		{[]string{"sale", "list", "--url=http://" + harness.Addr(t)}, "connection refused; is the admin service running there? Its address is --url (or DOORBUSTER_URL)"},
		{[]string{"sale", "list", "--url=127.0.0.1:8080"}, "--url (or DOORBUSTER_URL) 127.0.0.1:8080: must be http://HOST:PORT"},
		{[]string{"quota", "deduct", "q", "1", "--grab-url=http://" + harness.Addr(t)}, "is the grab service running there? Its address is --grab-url (or DOORBUSTER_GRAB_URL)"},
		{[]string{"load", "nothing", "--url=http://192.0.2.1"}, "--allow-remote"},
		{[]string{"load", "nothing"}, "there is no such sale"},
		{[]string{"load", "nothing", "--url=http://" + harness.Addr(t)}, "connection refused; is the grab service running there?"},
		{[]string{"load", "nothing", "--url=localhost:8080"}, "must be http://HOST:PORT"},
		{[]string{"load", "nothing", "--item=A"}, "SKU:QUANTITY"},
		{[]string{"verify", "nothing"}, "nothing was checked: sale_not_found (404)"},
		{[]string{"verify", "nothing", "--url=http://" + harness.Addr(t)}, "nothing was checked: ask http://127.0.0.1"},
		{[]string{"verify", "nothing", "--admin-key="}, "nothing was checked: give the admin key"},
		{[]string{"verify", "nothing", "--redis=redis://127.0.0.1"}, "nothing was checked: give all of"},
	} {
		code, _, stderr := command(t, test.args...)
		if code != exitFailed || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit code %d, %q, want %q", test.args, code, stderr, test.want)
		}
	}
}

func TestABadCommandLineIsRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"sell"}, {"dev", "--batch-max=0"}, {"demo", "--users=5"}, {"sale", "orders", "s", "--limit=-1"}} {
		if code, _, stderr := command(t, args...); code != exitFailed || stderr == "" {
			t.Errorf("%v: exit code %d, %q", args, code, stderr)
		}
	}
	t.Setenv("DOORBUSTER_ADMIN_KEI", "x")
	if code, _, stderr := command(t, "sale", "list"); code != exitFailed || !strings.Contains(stderr, "did you mean DOORBUSTER_ADMIN_KEY") {
		t.Errorf("a misspelt variable: exit code %d, %q", code, stderr)
	}
}

func TestTimesAreReadAsPeopleWriteThem(t *testing.T) {
	base := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"now":                       base,
		"+90m":                      base.Add(90 * time.Minute),
		"2026-12-01T10:00:00+02:00": time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	} {
		if got, err := parseWhen(text, base); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	if _, err := parseWhen("tomorrow", base); err == nil {
		t.Error("tomorrow was taken")
	}
}

func TestUnlimitedStockIsNoNumberInASum(t *testing.T) {
	for want, stocks := range map[string][]int64{
		"30": {20, 10}, "20 + unlimited": {20, -1}, "unlimited": {-1, -1}, "0": {},
	} {
		items := make([]itemView, len(stocks))
		for i, stock := range stocks {
			items[i].Stock = stock
		}
		if got := totalStock(items); got != want {
			t.Errorf("the stock of %v is %q, want %q", stocks, got, want)
		}
	}
}

func TestNegativeNumbersAreWrittenAsPeopleDo(t *testing.T) {
	for line, want := range map[string]string{
		"quota put x --limit -1":                  "quota put x --limit=-1",
		"quota put x --limit=-1 --window day":     "quota put x --limit=-1 --window day",
		"sale adjust tv TV -10 --reason r":        "sale adjust tv TV --reason r -- -10",
		"sale --json adjust tv TV --reason r -10": "sale --json adjust tv TV --reason r -- -10",
		"sale adjust --reason r tv TV --json -10": "sale adjust --reason r tv TV --json -- -10",
		"sale adjust tv TV --reason -5 -10":       "sale adjust tv TV --reason=-5 -- -10",
		"sale adjust tv TV --reason r -- -8":      "sale adjust tv TV --reason r -- -8",
		"sale adjust tv TV --stock -1 --reason r": "sale adjust tv TV --stock=-1 --reason r",
	} {
		if got := strings.Join(bareNegative(strings.Fields(line)), " "); got != want {
			t.Errorf("%s is read as %s, want %s", line, got, want)
		}
	}
}
