package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"pgregory.net/rapid"
)

// history plays a sale on a model of Redis, a stream and a ledger that writes
// the stream's messages in any order. What the fold makes of ledger and tail
// must be what the model of Redis has.
type history struct {
	t    *rapid.T
	sale sale.Sale
	now  time.Time

	// Redis.
	remaining map[string]int64
	units     map[string]int64
	used      map[Counter]int64
	granted   map[string]bool
	applied   map[string]int64

	// The stream: message i has sequence i+1.
	stream  []sale.Batch
	written map[int]bool // messages the worker has committed

	// The ledger.
	orders    map[string]*sale.Order
	kept      map[string]int64      // units that stay counted, by order
	settled   map[string]sale.Grant // adjustments and cancelled dead letters
	dead      map[string]sale.Grant // open dead letters
	givebacks map[string]int64
}

func newHistory(t *rapid.T) *history {
	h := &history{
		t: t, now: time.UnixMilli(1_700_000_000_000).UTC(),
		sale:      sale.Sale{ID: "s", PerUserLimit: rapid.Int64Range(0, 3).Draw(t, "limit")},
		remaining: map[string]int64{}, units: map[string]int64{}, used: map[Counter]int64{}, granted: map[string]bool{}, applied: map[string]int64{},
		written: map[int]bool{}, orders: map[string]*sale.Order{}, kept: map[string]int64{}, settled: map[string]sale.Grant{},
		dead: map[string]sale.Grant{}, givebacks: map[string]int64{},
	}
	h.sale.Limits = []sale.Limit{
		{Scope: sale.ScopeUser, Window: sale.WindowDay}, {Scope: sale.ScopeIP, Window: sale.WindowMonth}, {Scope: sale.ScopeSale, Window: sale.WindowSale},
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "items") {
		stock := rapid.Int64Range(sale.Unlimited, 6).Draw(t, "stock")
		h.sale.Items = append(h.sale.Items, sale.Item{SKU: fmt.Sprintf("sku%d", i), Stock: stock})
		h.remaining[h.sale.Items[i].SKU] = stock
	}
	return h
}

// grab makes a batch of one to three grants, as grab.lua decides them.
func (h *history) grab() {
	var batch sale.Batch
	for range rapid.IntRange(1, 3).Draw(h.t, "batch") {
		h.now = h.now.Add(time.Duration(rapid.SampledFrom([]int{1, 7_000_000}).Draw(h.t, "ms")) * time.Millisecond)
		g := sale.Grant{
			Kind: sale.GrantGrab, OrderID: fmt.Sprintf("o%03d", len(h.granted)),
			User: fmt.Sprintf("u%d", rapid.IntRange(0, 4).Draw(h.t, "user")), IP: "192.0.2.1", At: h.now, ExpiresAt: h.now.Add(time.Minute),
		}
		if rapid.IntRange(0, 5).Draw(h.t, "kind") == 0 {
			g.Kind, g.User, g.ExpiresAt = sale.GrantAdjust, "", time.Time{}
		}
		for _, it := range h.sale.Items {
			if n := rapid.Int64Range(0, 2).Draw(h.t, "quantity"); n > 0 {
				g.Lines = append(g.Lines, sale.Line{SKU: it.SKU, Quantity: n, PriceCents: 7})
			}
		}
		if len(g.Lines) > 0 && h.allows(&g) {
			h.move(g.Lines, -1)
			h.granted[g.OrderID] = true
			if g.User != "" {
				h.units[g.User] += g.Units()
				h.count(&g, g.Units(), g.Units())
			}
			batch.Grants = append(batch.Grants, g)
		}
	}
	if len(batch.Grants) > 0 {
		h.stream = append(h.stream, batch)
	}
}

func (h *history) allows(g *sale.Grant) bool {
	for _, l := range g.Lines {
		if left := h.remaining[l.SKU]; left != sale.Unlimited && left < l.Quantity {
			return false
		}
	}
	return g.User == "" || h.sale.PerUserLimit == 0 || h.units[g.User]+g.Units() <= h.sale.PerUserLimit
}

// count is what Redis counts in the windows it keeps; all of a history's are kept.
func (h *history) count(g *sale.Grant, units, ofUser int64) {
	for _, c := range h.sale.Counts(g) {
		counter := Counter{Window{c.Limit.Name(), c.Period}, c.Subject}
		if c.Limit.Scope == sale.ScopeUser {
			h.used[counter] += ofUser
		} else {
			h.used[counter] += units
		}
	}
}

// grantOf is the grant an order was made of.
func grantOf(o *sale.Order) *sale.Grant {
	return &sale.Grant{Kind: sale.GrantGrab, OrderID: o.ID, User: o.User, IP: o.IP, At: o.CreatedAt}
}

func (h *history) move(lines []sale.Line, sign int64) {
	for _, l := range lines {
		if h.remaining[l.SKU] != sale.Unlimited {
			h.remaining[l.SKU] += sign * l.Quantity
		}
	}
}

// publishAgain puts an old message into the stream once more.
func (h *history) publishAgain() {
	if len(h.stream) > 0 {
		h.stream = append(h.stream, rapid.SampledFrom(h.stream).Draw(h.t, "again"))
	}
}

// write commits any message of the stream, perhaps once more.
func (h *history) write() {
	if len(h.stream) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.stream)-1).Draw(h.t, "message")
	h.written[i] = true
	for _, g := range h.stream[i].Grants {
		if h.known(g.OrderID) {
			continue
		}
		fate := rapid.IntRange(0, 9).Draw(h.t, "fate")
		switch {
		case fate == 0:
			h.dead[g.OrderID] = g
		case g.Kind == sale.GrantAdjust:
			h.settle(g)
		default:
			h.order(g, fate == 1)
		}
	}
}

func (h *history) known(orderID string) bool {
	_, dead := h.dead[orderID]
	_, settled := h.settled[orderID]
	return dead || settled || h.orders[orderID] != nil
}

func (h *history) settle(g sale.Grant) {
	for _, l := range g.Lines {
		for i := range h.sale.Items {
			if it := &h.sale.Items[i]; it.SKU == l.SKU && it.Stock != sale.Unlimited {
				it.Stock -= l.Quantity
			}
		}
	}
	h.settled[g.OrderID] = g
}

// order writes a grant's order. A rejected one gives up what it held: the
// restored state must not count it.
func (h *history) order(g sale.Grant, rejected bool) {
	o := &sale.Order{ID: g.OrderID, User: g.User, IP: g.IP, Status: sale.OrderPendingPayment, CreatedAt: g.At, ExpiresAt: g.ExpiresAt}
	for _, l := range g.Lines {
		o.Lines = append(o.Lines, sale.OrderLine{Line: l})
	}
	if rejected {
		o.Status, o.Reason = sale.OrderRejected, sale.ReasonOversold
		h.move(g.Lines, 1)
		h.units[g.User] -= g.Units()
		h.count(&g, -g.Units(), -g.Units())
	}
	h.orders[o.ID] = o
}

// giveBack cancels an order, or returns one unit of it.
func (h *history) giveBack() {
	ids := slices.Sorted(maps.Keys(h.orders))
	if len(ids) == 0 {
		return
	}
	o := h.orders[rapid.SampledFrom(ids).Draw(h.t, "order")]
	if !o.Status.Live() {
		return
	}
	cancel := rapid.Bool().Draw(h.t, "cancel")
	var back []sale.Line
	for i := range o.Lines {
		l := &o.Lines[i]
		n := l.Quantity - l.Returned
		if !cancel {
			n = min(n, 1)
		}
		l.Returned += n
		if n > 0 {
			back = append(back, sale.Line{SKU: l.SKU, Quantity: n})
		}
	}
	if cancel {
		o.Status = sale.OrderCancelled
	}
	var units int64
	for _, l := range back {
		units += l.Quantity
	}
	if rapid.Bool().Draw(h.t, "no regrab") { // an operator may change it at any time
		h.kept[o.ID] += units
		h.count(grantOf(o), -units, 0)
		h.apply(fmt.Sprintf("back:%d", len(h.givebacks)), "", back)
		return
	}
	h.count(grantOf(o), -units, -units)
	h.apply(fmt.Sprintf("back:%d", len(h.givebacks)), o.User, back)
}

func (h *history) apply(id, user string, lines []sale.Line) {
	var units int64
	for _, l := range lines {
		units += l.Quantity
	}
	h.givebacks[id], h.applied[id] = units, units
	h.move(lines, 1)
	if user != "" {
		h.units[user] -= units
	}
}

// raise is an operator's adjustment upwards.
func (h *history) raise() {
	it := &h.sale.Items[rapid.IntRange(0, len(h.sale.Items)-1).Draw(h.t, "item")]
	if it.Stock == sale.Unlimited {
		return
	}
	it.Stock += 2
	h.apply(fmt.Sprintf("raise:%d", len(h.givebacks)), "", []sale.Line{{SKU: it.SKU, Quantity: 2}})
}

// bury decides an open dead letter: its order is written, or it is cancelled and its stock given back.
func (h *history) bury() {
	ids := slices.Sorted(maps.Keys(h.dead))
	if len(ids) == 0 {
		return
	}
	g := h.dead[rapid.SampledFrom(ids).Draw(h.t, "dead letter")]
	delete(h.dead, g.OrderID)
	switch {
	case rapid.Bool().Draw(h.t, "replay") && g.Kind == sale.GrantAdjust:
		h.settle(g)
	case rapid.Bool().Draw(h.t, "replay"):
		h.settled[g.OrderID] = g
		h.count(&g, -g.Units(), -g.Units())
		h.apply("dead:"+g.OrderID, g.User, g.Lines)
	case g.Kind == sale.GrantGrab:
		h.order(g, false)
	default:
		h.dead[g.OrderID] = g
	}
}

// progress is the lower bound the worker has recorded, or less.
func (h *history) progress() int {
	done := 0
	for h.written[done] {
		done++
	}
	return rapid.IntRange(0, done).Draw(h.t, "progress")
}

func (h *history) fold() (Folded, map[string]bool) {
	emitted := map[string]bool{}
	f := NewFold(&h.sale, time.UnixMilli(1_700_000_000_000), func(orderID string, record []byte) error {
		if emitted[orderID] {
			h.t.Fatalf("grant %s was emitted twice", orderID)
		}
		g, rest, err := sale.DecodeGrant(record)
		if err != nil || len(rest) > 0 || g.OrderID != orderID {
			h.t.Fatalf("record of grant %s is of %s: %v", orderID, g.OrderID, err)
		}
		emitted[orderID] = true
		return nil
	})
	for _, batch := range h.stream[h.progress():] {
		for i := range batch.Grants {
			f.Loose(&batch.Grants[i])
		}
	}
	for _, g := range h.dead {
		f.Loose(&g)
	}
	for id, units := range h.kept {
		f.Kept(id, units)
	}
	for _, o := range h.orders {
		h.must(f.Order(o))
	}
	for _, g := range h.settled {
		h.must(f.Settled(&g))
	}
	for id, units := range h.givebacks {
		f.Giveback(id, units)
	}
	folded, err := f.Finish()
	h.must(err)
	return folded, emitted
}

func (h *history) must(err error) {
	if err != nil {
		h.t.Fatal(err)
	}
}

func TestFoldMakesOfLedgerAndTailWhatRedisHad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		steps := []func(){h.grab, h.grab, h.grab, h.write, h.write, h.publishAgain, h.giveBack, h.raise, h.bury}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			rapid.SampledFrom(steps).Draw(t, "step")()
		}
		got, emitted := h.fold()
		if !maps.Equal(got.Remaining, h.remaining) {
			t.Fatalf("remaining %v, Redis had %v", got.Remaining, h.remaining)
		}
		for user, units := range h.units {
			if got.Buyers[user].Units != units {
				t.Fatalf("user %s holds %d units, Redis had %d", user, got.Buyers[user].Units, units)
			}
		}
		for user, b := range got.Buyers {
			if b.Units < 0 || !h.granted[b.OrderID] {
				t.Fatalf("buyer %s holds %d units by order %q", user, b.Units, b.OrderID)
			}
		}
		for c, units := range got.Used {
			if _, open := got.Windows[c.Window]; !open || units != h.used[c] {
				t.Fatalf("%+v has used %d units, Redis had %d; window open: %v", c, units, h.used[c], open)
			}
		}
		for c, units := range h.used {
			if got.Used[c] != units {
				t.Fatalf("%+v has used %d units, Redis had %d", c, got.Used[c], units)
			}
		}
		if !maps.Equal(emitted, h.granted) || got.Grants != int64(len(h.granted)) {
			t.Fatalf("%d grants %v, Redis had %v", got.Grants, emitted, h.granted)
		}
		if !maps.Equal(got.Givebacks, h.applied) {
			t.Fatalf("givebacks %v, Redis had applied %v", got.Givebacks, h.applied)
		}
		if got.Violations.Count != 0 {
			t.Fatalf("violations: %v", got.Violations.Details)
		}
	})
}

func TestFoldNeverSellsAnOversoldItemFurther(t *testing.T) {
	s := sale.Sale{ID: "s", Items: []sale.Item{{SKU: "a", Stock: 1}}}
	f := NewFold(&s, time.Now(), func(string, []byte) error { return nil })
	for i := range 3 {
		f.Loose(&sale.Grant{
			Kind: sale.GrantGrab, OrderID: fmt.Sprintf("o%d", i), User: "u", At: time.UnixMilli(int64(i)),
			Lines: []sale.Line{{SKU: "a", Quantity: 1}},
		})
	}
	got, err := f.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if got.Remaining["a"] != 0 || got.Violations.Count != 1 {
		t.Errorf("remaining %d with %d violations, want 0 with 1", got.Remaining["a"], got.Violations.Count)
	}
	if b := got.Buyers["u"]; b.Units != 3 || b.OrderID != "o2" {
		t.Errorf("user holds %+v, want 3 units and the last order o2", b)
	}
}

func TestFoldTellsOfUnknownItemsAndImpossibleReturns(t *testing.T) {
	s := sale.Sale{ID: "s", Items: []sale.Item{{SKU: "a", Stock: 5}}}
	f := NewFold(&s, time.Now(), func(string, []byte) error { return nil })
	orders := []sale.Order{
		{ID: "o1", User: "u", Status: sale.OrderPaid, Lines: []sale.OrderLine{{Line: sale.Line{SKU: "gone", Quantity: 1}}}},
		{ID: "o2", User: "v", Status: sale.OrderPaid, Lines: []sale.OrderLine{{Line: sale.Line{SKU: "a", Quantity: 1}, Returned: 2}}},
	}
	for i := range orders {
		if err := f.Order(&orders[i]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if got.Violations.Count != 2 || got.Remaining["a"] != 5 {
		t.Errorf("%d violations with %d left, want 2 with 5: %v", got.Violations.Count, got.Remaining["a"], got.Violations.Details)
	}
}
