package web

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// proxies are trusted in these tests: two networks, and one address.
var proxies = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.1/32"),
}

func addressOf(t testing.TB, trusted []netip.Prefix, header, peer string, lists ...string) string {
	t.Helper()
	c, err := NewClientAddress(trusted, header)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, list := range lists {
		r.Header.Add(header, list)
	}
	return c.Of(r)
}

func TestTheAddressIsThatOfTheConnectionUnlessATrustedProxyHoldsIt(t *testing.T) {
	for _, test := range []struct {
		name, peer, want string
		trusted          []netip.Prefix
	}{
		{"nobody is trusted", "10.0.0.1:1234", "10.0.0.1", nil},
		{"a stranger's header is not read", "203.0.113.5:1234", "203.0.113.5", proxies},
		{"a stranger over IPv6", "[2001:db8::5]:1234", "2001:db8::5", proxies},
		{"a zone is no part of an address", "[fe80::1%eth0]:1234", "fe80::1", proxies},
		{"IPv4 in IPv6 is IPv4", "[::ffff:203.0.113.5]:1234", "203.0.113.5", proxies},
		{"a proxy", "10.0.0.1:1234", "198.51.100.7", proxies},
		{"a proxy over IPv6", "[fd00::1]:1234", "198.51.100.7", proxies},
		{"a proxy as IPv4 in IPv6", "[::ffff:10.0.0.1]:1234", "198.51.100.7", proxies},
		{"a connection without an address", "@", "", proxies},
		{"a connection without a number", "localhost:80", "", proxies},
	} {
		t.Run(test.name, func(t *testing.T) {
			for header, list := range map[string]string{XForwardedFor: "198.51.100.7", Forwarded: "for=198.51.100.7"} {
				if got := addressOf(t, test.trusted, header, test.peer, list); got != test.want {
					t.Errorf("%s: %q, want %q", header, got, test.want)
				}
			}
		})
	}
}

func TestTheFirstAddressFromTheEndThatIsNoProxyIsTheClients(t *testing.T) {
	for _, test := range []struct {
		header string
		lists  []string
		want   string
	}{
		{XForwardedFor, nil, "10.0.0.1"},
		{XForwardedFor, []string{"203.0.113.9"}, "203.0.113.9"},
		{XForwardedFor, []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{XForwardedFor, []string{"6.6.6.6,203.0.113.9,10.1.1.1 , 192.0.2.1"}, "203.0.113.9"},
		{XForwardedFor, []string{"6.6.6.6, 203.0.113.9", "10.1.1.1"}, "203.0.113.9"},
		{XForwardedFor, []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{XForwardedFor, []string{"2001:db8::9"}, "2001:db8::9"},
		{XForwardedFor, []string{"[2001:db8::9]"}, "2001:db8::9"},
		{XForwardedFor, []string{"[2001:0DB8:0::9]:4711"}, "2001:db8::9"},
		{XForwardedFor, []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{XForwardedFor, []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{XForwardedFor, []string{"fe80::9%eth0"}, "fe80::9"},
		{XForwardedFor, []string{"203.0.113.9, , fd00::7,"}, "203.0.113.9"},
		{XForwardedFor, []string{"", " "}, "10.0.0.1"},

		{Forwarded, []string{"for=203.0.113.9"}, "203.0.113.9"},
		{Forwarded, []string{"FOR=203.0.113.9; proto=https;by=10.1.1.1"}, "203.0.113.9"},
		{Forwarded, []string{`proto=http;for="203.0.113.9:4711";`}, "203.0.113.9"},
		{Forwarded, []string{`for="[2001:db8::9]:4711"`}, "2001:db8::9"},
		{Forwarded, []string{`for="[2001:db8::9]"`}, "2001:db8::9"},
		{Forwarded, []string{`for=[2001:db8::9]:4711`}, "2001:db8::9"},
		{Forwarded, []string{`for="203.0.113.9:_port"`}, "203.0.113.9"},
		{Forwarded, []string{`for="203\.0.113.9"`}, "203.0.113.9"},
		{Forwarded, []string{`for=6.6.6.6, for=203.0.113.9;host="a,b;for=7.7.7.7", for="[fd00::3]"`}, "203.0.113.9"},
		{Forwarded, []string{`for=6.6.6.6, for=203.0.113.9;host="a\",\\", for=10.9.9.9`}, "203.0.113.9"},
		{Forwarded, []string{`for=6.6.6.6;by=", for=203.0.113.9`}, "203.0.113.9"},
		{Forwarded, []string{`for=6.6.6.6`, `for=203.0.113.9`, ``, `for=10.1.1.1, `}, "203.0.113.9"},
	} {
		if got := addressOf(t, proxies, test.header, "10.0.0.1:1", test.lists...); got != test.want {
			t.Errorf("%s %q: %q, want %q", test.header, test.lists, got, test.want)
		}
	}
}

func TestWhatCantBeReadIsAnsweredForByTheProxyWhoWroteIt(t *testing.T) {
	for header, elements := range map[string][]string{
		XForwardedFor: {
			"unknown", "_hidden", "203.0.113", "203.0.113.9.1", "203.0.113.9:", "203.0.113.9:65536", "203.0.113.9:x",
			"[2001:db8::9", "2001:db8::9]", "[2001:db8::9]4711", "[203.0.113.9]", `"203.0.113.9"`, "for=203.0.113.9", "0.0.0.0", "::", "localhost",
		},
		Forwarded: {
			"for=unknown", "for=_hidden", "for=_SEVKISEK", "proto=https", "203.0.113.9", "for", "for=", `for=""`, "for=203.0.113.9;for=203.0.113.9",
			`for="203.0.113.9`, `for=203.0.113.9"`, `for="2001:db8::9"`, `for=2001:db8::9`, `for="203.0.113.9"x`, "for = 203.0.113.9", "f(r=203.0.113.9",
			`for="203.0.113.9:99999"`, `for="203.0.113.9:_"`, `for="[::]"`, `for=203.0.113.9 x`, `for=203.0.113.9;proto`, `"`, `for="\`,
		},
	} {
		join := ", "
		for _, element := range elements {
			if got := addressOf(t, proxies, header, "10.0.0.1:1", element); got != "10.0.0.1" {
				t.Errorf("%s %q: %q, want the proxy's", header, element, got)
			}
			behind := "10.7.7.7"
			if header == Forwarded {
				behind = "for=10.7.7.7"
			}
			if got := addressOf(t, proxies, header, "10.0.0.1:1", "203.0.113.9"+join+element+join+behind); got != "10.7.7.7" {
				t.Errorf("%s %q before another proxy: %q, want that one's", header, element, got)
			}
		}
	}
}

func TestOnlyTheHeaderThatTheProxiesWriteIsBelieved(t *testing.T) {
	for header, other := range map[string]string{XForwardedFor: Forwarded, Forwarded: XForwardedFor} {
		c, err := NewClientAddress(proxies, header)
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{}}
		r.Header.Set(other, map[string]string{XForwardedFor: "6.6.6.6", Forwarded: "for=6.6.6.6"}[other])
		if got := c.Of(r); got != "10.0.0.1" {
			t.Errorf("with %s believed, %s made it %s", header, other, got)
		}
	}
	if _, err := NewClientAddress(proxies, "x-real-ip"); err == nil {
		t.Error("a header nobody knows was taken")
	}
}

func TestTheAddressOfAConnectionCostsNoAllocation(t *testing.T) {
	for name, trusted := range map[string][]netip.Prefix{"without proxies": nil, "of a stranger": proxies} {
		c, err := NewClientAddress(trusted, XForwardedFor)
		if err != nil {
			t.Fatal(err)
		}
		for _, peer := range []string{"203.0.113.5:1234", "[2001:db8::5]:1234"} {
			r := &http.Request{RemoteAddr: peer}
			if n := testing.AllocsPerRun(100, func() { _ = c.Of(r) }); n > 0 {
				t.Errorf("%s, %s: %v allocations", name, peer, n)
			}
		}
	}
}

// FuzzAForgedHeaderNeverWins sends whatever a client may make up through a proxy
// that appends the client's address, as all do: in the same line or in one of its own.
func FuzzAForgedHeaderNeverWins(f *testing.F) {
	for _, forged := range []string{
		"", "6.6.6.6", "for=6.6.6.6", `for="6.6.6.6`, `"`, `\"`, `for=6.6.6.6;by="`, ",", `,",\`, "10.1.1.1", `for="[fd00::1]"`, "for=_x;", "for=6.6.6.6;for=",
	} {
		f.Add(forged)
	}
	const client = "203.0.113.9"
	f.Fuzz(func(t *testing.T, forged string) {
		for header, written := range map[string]string{XForwardedFor: client, Forwarded: `for="` + client + `:4711";by=10.0.0.1`} {
			for _, lists := range [][]string{{forged + ", " + written}, {forged, written}} {
				if got := addressOf(t, proxies, header, "10.0.0.1:1", lists...); got != client {
					t.Errorf("%s %q: %q", header, lists, got)
				}
			}
			if got := addressOf(t, proxies, header, client+":1", forged); got != client {
				t.Errorf("%s %q from a stranger: %q", header, forged, got)
			}
			alone := addressOf(t, proxies, header, "10.0.0.1:1", forged)
			if addr, err := netip.ParseAddr(alone); err != nil || addr.String() != alone || addr.Zone() != "" || addr.Is4In6() || strings.Contains(alone, "%") {
				t.Errorf("%s %q: %q is no plain address", header, forged, alone)
			}
		}
	})
}
