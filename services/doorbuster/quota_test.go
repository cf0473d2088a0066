package main

import (
	"strings"
	"testing"
)

func TestAQuotaIsMadeUsedAndReturnedFromTheCommandLine(t *testing.T) {
	openShop(t)
	contains(t, "put", succeed(t, "quota", "put", "sms", "--limit=10", "--window=day", "--timezone=Europe/Berlin"), "sms: 10 per day (Europe/Berlin)", "0 used, 10 left")
	first := succeed(t, "quota", "deduct", "sms", "7", "--key=k1")
	contains(t, "deduct", first, "allowed, 3 left: quota_sms.")
	contains(t, "deduct again", succeed(t, "quota", "deduct", "sms", "7", "--key=k1"), first)
	code, stdout, _ := command(t, "quota", "deduct", "sms", "4")
	if code != exitNo || !strings.Contains(stdout, "refused, 3 left") {
		t.Errorf("too many: exit code %d: %s", code, stdout)
	}
	_, id, _ := strings.Cut(strings.TrimSpace(first), ": ")
	for range 2 {
		contains(t, "return", succeed(t, "quota", "return", "sms", id, "5", "--id=r1"), "5 of 7 returned")
	}
	contains(t, "deduct what came back", succeed(t, "quota", "deduct", "sms", "8"), "allowed, 0 left")
	contains(t, "change", succeed(t, "quota", "put", "sms", "--limit=unlimited"), "unlimited per day", "10 used, unlimited left")
	contains(t, "a negative limit after a space", succeed(t, "quota", "put", "sms", "--limit", "-1"), "unlimited per day")
	contains(t, "get", succeed(t, "quota", "get", "sms", "--json"), `"used": 10`, `"loaded": true`)
	contains(t, "list", succeed(t, "quota", "list"), "sms  unlimited  day     Europe/Berlin")
	contains(t, "verify", succeed(t, "verify", "quota_sms"), "0 violated")
	if text := succeed(t, "sale", "list"); strings.Contains(text, "sms") {
		t.Errorf("a quota is listed as a sale: %s", text)
	}
	for want, args := range map[string][]string{
		"quota_fixed (409) window":        {"quota", "put", "sms", "--limit=1", "--window=month"},
		"quota_not_found (404)":           {"quota", "get", "nobody"},
		"return_exceeds_order (409)":      {"quota", "return", "sms", id, "3", "--id=r2"},
		"return_id_reused (409)":          {"quota", "return", "sms", id, "2", "--id=r1"},
		"not_found (404)":                 {"quota", "return", "other", id, "1", "--id=r3"},
		"invalid_field (400) quantity":    {"quota", "deduct", "sms", "0"},
		"invalid_field (400) return_id":   {"quota", "return", "sms", id, "1", "--id=a b"},
		"invalid_field (400) key":         {"quota", "deduct", "s.ms", "1"},
		"unauthorized (401)":              {"quota", "deduct", "sms", "1", "--gateway-key=nobody"},
		"must be a number of units or un": {"quota", "put", "sms", "--limit=many"},
	} {
		if code, _, stderr := command(t, args...); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
	// Nobody made it, and this shop refuses those.
	code, stdout, _ = command(t, "quota", "deduct", "unknown", "1")
	if code != exitNo || !strings.Contains(stdout, "refused, 0 left") {
		t.Errorf("an unknown quota: exit code %d: %s", code, stdout)
	}
}
