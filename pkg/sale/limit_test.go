package sale_test

import (
	"errors"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestWindowsFollowTheCalendarOfTheSale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, at string
		window   sale.LimitWindow
		period   string
		end      string
	}{
		// The clocks in Berlin go forward at 02:00 on the 29th of March 2026: that day has 23 hours.
		{"Europe/Berlin", "2026-03-28T22:59:59Z", sale.WindowDay, "2026-03-28", "2026-03-28T23:00:00Z"},
		{"Europe/Berlin", "2026-03-28T23:00:00Z", sale.WindowDay, "2026-03-29", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", "2026-03-29T21:59:59.999Z", sale.WindowDay, "2026-03-29", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", "2026-03-29T22:00:00Z", sale.WindowDay, "2026-03-30", "2026-03-30T22:00:00Z"},
		// They go back on the 25th of October: that day has 25 hours.
		{"Europe/Berlin", "2026-10-24T22:00:00Z", sale.WindowDay, "2026-10-25", "2026-10-25T23:00:00Z"},
		{"Europe/Berlin", "2026-10-25T22:59:59Z", sale.WindowDay, "2026-10-25", "2026-10-25T23:00:00Z"},
		// In Santiago the clocks go forward at midnight: the 6th of September 2026 begins at 01:00.
		{"America/Santiago", "2026-09-06T03:59:59Z", sale.WindowDay, "2026-09-05", "2026-09-06T04:00:00Z"},
		{"America/Santiago", "2026-09-06T04:00:00Z", sale.WindowDay, "2026-09-06", "2026-09-07T03:00:00Z"},
		// In Apia the 30th of December 2011 never was.
		{"Pacific/Apia", "2011-12-30T09:59:59Z", sale.WindowDay, "2011-12-29", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", sale.WindowDay, "2011-12-31", "2011-12-31T10:00:00Z"},
		{"Asia/Tokyo", "2026-01-31T14:59:59Z", sale.WindowMonth, "2026-01", "2026-01-31T15:00:00Z"},
		{"Asia/Tokyo", "2026-01-31T15:00:00Z", sale.WindowMonth, "2026-02", "2026-02-28T15:00:00Z"},
		{"America/New_York", "2027-01-01T04:59:59Z", sale.WindowYear, "2026", "2027-01-01T05:00:00Z"},
		{"America/New_York", "2027-01-01T05:00:00Z", sale.WindowYear, "2027", "2028-01-01T05:00:00Z"},
		{"UTC", "2026-11-21T12:00:00Z", sale.WindowSale, "", ""},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.window.Period(at, zone); got != c.period {
			t.Errorf("the %s of %s in %s is %q, want %q", c.window, c.at, c.zone, got, c.period)
		}
		// A window begins where the one before it ends.
		if start := c.window.Start(at, zone); !start.IsZero() {
			if before := c.window.End(start.Add(-time.Nanosecond), zone); !before.Equal(start) || start.After(at) {
				t.Errorf("the %s of %s in %s starts at %s, the one before ends at %s", c.window, c.at, c.zone, start, before)
			}
			if c.window.Period(start, zone) != c.period {
				t.Errorf("the %s of %s in %s starts at %s, which is of another", c.window, c.at, c.zone, start)
			}
		}
		end := ""
		if e := c.window.End(at, zone); !e.IsZero() {
			end = e.UTC().Format(time.RFC3339)
		}
		if end != c.end {
			t.Errorf("the %s of %s in %s ends at %q, want %q", c.window, c.at, c.zone, end, c.end)
		}
	}
}

func TestALimitCountsForItsSubject(t *testing.T) {
	t.Parallel()
	g := sale.Grant{Kind: sale.GrantGrab, User: "ann", At: time.Date(2026, 11, 21, 23, 30, 0, 0, time.UTC)}
	s := sale.Sale{Timezone: "Europe/Berlin", Rules: sale.Rules{Limits: []sale.Limit{
		{Scope: sale.ScopeUser, Window: sale.WindowDay, Max: 1}, {Scope: sale.ScopeIP, Window: sale.WindowMonth, Max: 2},
		{Scope: sale.ScopeSale, Window: sale.WindowSale, Max: 3},
	}}}
	for ip, group := range map[string]string{
		"203.0.113.7": "203.0.113.7", "::ffff:203.0.113.7": "203.0.113.7",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:2:ffff::1%eth0": "2001:db8:1:2::/64", "": "",
	} {
		g.IP = ip
		want := []sale.Count{
			{Limit: s.Limits[0], Period: "2026-11-22", Subject: "ann"},
			{Limit: s.Limits[1], Period: "2026-11", Subject: group},
			{Limit: s.Limits[2]},
		}
		for i, got := range s.Counts(&g) {
			if got != want[i] {
				t.Errorf("with address %q: counts in %+v, want %+v", ip, got, want[i])
			}
		}
	}
	g.Kind = sale.GrantAdjust
	if counts := s.Counts(&g); counts != nil {
		t.Errorf("an adjustment counts in %v", counts)
	}
}

func TestRulesNameTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	hook := sale.Fulfilment{URL: "https://shop.example/hook", Trigger: sale.FulfilPaid, GiveUpAfter: sale.Duration(time.Hour), OnFailure: sale.FailurePark}
	with := func(change func(*sale.Fulfilment)) sale.Rules {
		f := hook
		change(&f)
		return sale.Rules{Fulfilment: &f}
	}
	limit := func(scope sale.LimitScope, window sale.LimitWindow, most int64) sale.Limit {
		return sale.Limit{Scope: scope, Window: window, Max: most}
	}
	for field, rules := range map[string]sale.Rules{
		"limits[0].scope":          {Limits: []sale.Limit{limit("planet", "day", 1)}},
		"limits[1].window":         {Limits: []sale.Limit{limit("user", "day", 1), limit("user", "week", 1)}},
		"limits[0].max":            {Limits: []sale.Limit{limit("sale", "sale", -1)}},
		"limits[1]":                {Limits: []sale.Limit{limit("ip", "day", 1), limit("ip", "day", 2)}},
		"rate_limit":               {RateLimit: -1},
		"fulfilment.url":           with(func(f *sale.Fulfilment) { f.URL = "ftp://shop.example" }),
		"fulfilment.trigger":       with(func(f *sale.Fulfilment) { f.Trigger = "never" }),
		"fulfilment.give_up_after": with(func(f *sale.Fulfilment) { f.GiveUpAfter = 0 }),
		"fulfilment.on_failure":    with(func(f *sale.Fulfilment) { f.OnFailure = "" }),
		"":                         with(func(*sale.Fulfilment) {}),
	} {
		s := sale.Sale{
			ID: "drop", Name: "Drop", StartsAt: time.Unix(0, 0), EndsAt: time.Unix(60, 0), PaymentWindow: sale.Duration(time.Minute),
			Timezone: "UTC", Items: []sale.Item{{SKU: "A", Stock: 1}}, Rules: rules,
		}
		got := ""
		if wrong, ok := s.Validate().(*sale.FieldError); ok { //nolint:errorlint // Validate answers it bare
			got = wrong.Field
		}
		if got != field {
			t.Errorf("%+v: field %q is wrong, want %q", rules, got, field)
		}
	}
}

func TestAReceiversAddressIsPrintableASCII(t *testing.T) {
	t.Parallel()
	for address, fine := range map[string]bool{
		"https://shop.example/hook?token=a%20b~!": true,
		"https://xn--bcher-kva.example/":          true,
		"https://bücher.example/":                 false,
		"https://shop.example/hök":                false,
		"https://shop.example/hook?q=€":           false,
		"https://shop.example/a b":                false,
		"https://shop.example/hook?a b":           false,
		"https://shop.example/\u00a0":             false,
	} {
		s := sale.Sale{
			ID: "drop", Name: "Drop", StartsAt: time.Unix(0, 0), EndsAt: time.Unix(60, 0), PaymentWindow: sale.Duration(time.Minute),
			Timezone: "UTC", Items: []sale.Item{{SKU: "A", Stock: 1}}, Rules: sale.Rules{Fulfilment: &sale.Fulfilment{
				URL: address, Trigger: sale.FulfilPaid, GiveUpAfter: sale.Duration(time.Hour), OnFailure: sale.FailurePark,
			}},
		}
		got := ""
		if wrong, refused := errors.AsType[*sale.FieldError](s.Validate()); refused {
			got = wrong.Field
		}
		if (got == "") != fine || (!fine && got != "fulfilment.url") {
			t.Errorf("%s: field %q is wrong", address, got)
		}
	}
}
