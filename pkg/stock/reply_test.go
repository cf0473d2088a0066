package stock

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Redis answers what grab.lua returns; anything else must be an error, never a
// win by accident.
func TestReplyOfAnotherShapeIsAnError(t *testing.T) {
	grant := &sale.Grant{Kind: sale.GrantGrab, OrderID: "o", User: "u", Lines: []sale.Line{{SKU: "A", Quantity: 1}}}
	b := Batch{SaleID: "s", Process: "p", Number: 1, Asks: []Ask{{Grant: grant, Record: sale.AppendGrant(nil, grant)}}}
	in := arguments{skus: []string{"A"}, used: []usedKey{{limit: sale.Limit{Scope: sale.ScopeUser, Window: sale.WindowDay}}}}
	good := func(code string, details ...any) []any {
		return []any{"ok", "1", "7", int64(0), code, details, []any{int64(5)}, []any{int64(3)}}
	}
	for name, reply := range map[string][]any{
		"won": good("W"), "replayed": good("R", "p 1\nrecord"), "already": good("A", "o0"), "limit": good("L", int64(2)),
		"sold out": good("S", int64(1)), "count": good("C", int64(1)), "throttled": good("T", int64(20)),
	} {
		if _, err := b.decision(reply, &in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	change := func(i int, v any) []any {
		reply := good("W")
		reply[i] = v
		return reply
	}
	for name, reply := range map[string][]any{
		"nothing":                  {},
		"no generation":            change(1, int64(1)),
		"generation is no number":  change(1, "x"),
		"fence is no number":       change(2, "x"),
		"givebacks are text":       change(3, "0"),
		"codes are a number":       change(4, int64(1)),
		"details are text":         change(5, "x"),
		"remaining is text":        change(6, "x"),
		"remaining of no item":     change(6, []any{}),
		"remaining of other items": change(6, []any{"5"}),
		"cut short":                good("W")[:5],
		"used is text":             change(7, "x"),
		"used of no key":           change(7, []any{}),
		"too few answers":          good(""),
		"too many answers":         good("WW"),
		"unknown code":             good("X"),
		"replay without a grant":   good("R"),
		"replay of rubbish":        good("R", "rubbish"),
		"replay of no process":     good("R", "1\nrecord"),
		"replay of no number":      good("R", "p x\nrecord"),
		"already without an order": good("A", int64(1)),
		"limit without units":      good("L", "2"),
		"sold out of nothing":      good("S"),
		"sold out of item 0":       good("S", int64(0)),
		"sold out of item 2":       good("S", int64(2)),
		"no limit refuses":         good("C", int64(2)),
		"a wait that is text":      good("T", "20"),
	} {
		if d, err := b.decision(reply, &in); err == nil {
			t.Errorf("%s: was read as %+v", name, d)
		}
	}
}

func TestUnknownAnswersAreErrors(t *testing.T) {
	for name, reply := range map[string][]any{
		"nothing": {}, "unknown": {"lost", "1 p 1\nrecord"}, "no grant": {"durable"}, "rubbish": {"pending", "rubbish"},
	} {
		if f, ok, err := readFound(reply); err == nil || ok {
			t.Errorf("found, %s: was read as %+v", name, f)
		}
	}
	r := New(nil).BeginRestore("s", 1)
	for name, reply := range map[string][]any{
		"nothing": {}, "unknown": {"half"}, "older than nothing": {"older"}, "incomplete": {"incomplete", "key"},
	} {
		if err := r.read(reply, Target{}); err == nil {
			t.Errorf("restore, %s: was read as done", name)
		}
	}
	if _, err := readState([]any{"ok", "1"}, nil); err == nil {
		t.Error("state: half of it was read as whole")
	}
}
