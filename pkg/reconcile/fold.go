package reconcile

import (
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// Emit takes one grant of the folded state; record is as sale.AppendGrant
// writes it. It is called once per order id.
type Emit func(orderID string, record []byte) error

// Fold unites what the ledger says about a sale with the part of the stream the
// ledger may not have written yet. It does no I/O. Call Loose for every grant
// that may have no order and Kept for units that stay counted, then Order, Settled
// and Giveback for what the ledger holds, then Finish. Reading too much of the stream is harmless: an order id
// counts once.
//
// It keeps in memory the loose grants, one entry per user, and the ids of the
// givebacks. The grants of the ledger pass through to Emit.
type Fold struct {
	saleID     string
	rules      sale.Sale // the sale without its items
	now        time.Time
	since      time.Time // see rememberedSince; the zero time is ever
	emit       Emit
	items      map[string]*itemTally
	buyers     map[string]Holding
	used       map[Counter]int64
	windows    map[Window]time.Time
	kept       map[string]int64  // order id -> units, see Kept
	loose      map[string][]byte // order id -> record
	givebacks  map[string]int64
	grants     int64
	fromLoose  int64
	violations Violations
}

type itemTally struct {
	stock int64
	taken int64
}

// Folded is the state a sale must have in Redis.
type Folded struct {
	// Remaining is the units left per SKU; sale.Unlimited stays what it is.
	Remaining map[string]int64
	// Buyers has every user who was granted something, with what they hold now.
	Buyers map[string]Holding
	// Windows are those that Redis keeps counts of, each with a moment in it; Used
	// has the units used in them.
	Windows map[Window]time.Time
	Used    map[Counter]int64
	// Givebacks has every giveback the counts contain, with its units.
	Givebacks map[string]int64
	// Grants is how many grants were emitted; FromStream of them have no order
	// in the ledger yet.
	Grants, FromStream int64
	Violations         Violations
}

// Holding is what a user holds in a sale.
type Holding struct {
	Units   int64
	OrderID string // the last order, whether it holds any of them or not

	at int64 // when that order was granted, Unix ms
}

// Window is one limit in one of its periods.
type Window struct{ Limit, Period string }

// Counter is what one subject has used in a window.
type Counter struct {
	Window
	Subject string
}

// NewFold starts the fold of a sale as the ledger defines it: the items' stock
// contains every adjustment the ledger has written. Counts of windows that Redis has
// dropped by now are left out, and so are the orders of a quota that nothing counts any
// more.
func NewFold(s *sale.Sale, now time.Time, emit Emit) *Fold {
	f := &Fold{
		saleID: s.ID, rules: *s, now: now, since: rememberedSince(s, now), emit: emit,
		items:     make(map[string]*itemTally, len(s.Items)),
		buyers:    make(map[string]Holding),
		used:      make(map[Counter]int64),
		windows:   make(map[Window]time.Time),
		kept:      make(map[string]int64),
		loose:     make(map[string][]byte),
		givebacks: make(map[string]int64),
	}
	for _, it := range s.Items {
		f.items[it.SKU] = &itemTally{stock: it.Stock}
	}
	f.openWindows()
	return f
}

// openWindows names every window that a grab of these days counts in, whether the
// books have a grab in it or not: Redis may have counted one that was fenced out.
func (f *Fold) openWindows() {
	const day = 24 * time.Hour
	for _, l := range f.rules.Limits {
		for at := f.now.Add(-stock.UsedGrace); !at.After(f.now.Add(day)); at = at.Add(day) {
			f.window(l, at)
		}
	}
}

// window returns the window of a limit that holds at, when Redis keeps its count.
func (f *Fold) window(l sale.Limit, at time.Time) (w Window, kept bool) {
	zone := f.rules.Location()
	if end := l.Window.End(at, zone); !end.IsZero() && !f.now.Before(end.Add(stock.UsedGrace)) {
		return Window{}, false
	}
	w = Window{l.Name(), l.Window.Period(at, zone)}
	if _, known := f.windows[w]; !known {
		f.windows[w] = at
	}
	return w, true
}

// Loose adds a grant that may have no order in the ledger: one of the stream's
// tail, or an open dead letter. It holds stock unless Order or Settled names it.
func (f *Fold) Loose(g *sale.Grant) {
	if _, known := f.loose[g.OrderID]; !known {
		f.loose[g.OrderID] = sale.AppendGrant(nil, g)
	}
}

// Kept adds units of an order that came back and stay counted against its user.
func (f *Fold) Kept(orderID string, units int64) { f.kept[orderID] += units }

// Order adds an order of the ledger. One that is not live holds nothing, but its
// grant stays known, so that its idempotency key goes on naming it: that holds
// for cancelled, expired and rejected orders alike.
func (f *Fold) Order(o *sale.Order) error {
	if o.CreatedAt.Before(f.since) {
		delete(f.loose, o.ID)
		return nil
	}
	g := sale.Grant{
		Kind: sale.GrantGrab, OrderID: o.ID, User: o.User, Key: o.Key, IP: o.IP, At: o.CreatedAt, ExpiresAt: o.ExpiresAt,
		Lines: make([]sale.Line, len(o.Lines)),
	}
	var held int64
	for i, l := range o.Lines {
		g.Lines[i] = l.Line
		if o.Status.Live() {
			held += f.take(&g, l.SKU, l.Quantity-l.Returned)
		}
	}
	ofUser := held + f.kept[o.ID]
	f.hold(&g, ofUser)
	f.count(&g, held, ofUser)
	return f.settle(&g)
}

// Settled adds a grant that the ledger has dealt with otherwise than by an order,
// and that holds nothing beyond what the items' stock contains: an adjustment
// it has written, or a dead letter that was cancelled.
func (f *Fold) Settled(g *sale.Grant) error {
	f.hold(g, 0)
	return f.settle(g)
}

// settle passes the grant on and takes it out of the loose ones.
func (f *Fold) settle(g *sale.Grant) error {
	delete(f.loose, g.OrderID)
	return f.pass(g.OrderID, sale.AppendGrant(nil, g))
}

func (f *Fold) pass(orderID string, record []byte) error {
	f.grants++
	return f.emit(orderID, record)
}

// Giveback adds a giveback that the ledger has decided: its orders and its
// items' stock contain it.
func (f *Fold) Giveback(id string, units int64) { f.givebacks[id] = units }

// take holds units of an item for the grant, and returns how many.
func (f *Fold) take(g *sale.Grant, sku string, units int64) int64 {
	item, ok := f.items[sku]
	switch {
	case units < 0:
		f.violations.Addf("order %s has %d units more of %q returned than granted", g.OrderID, -units, sku)
		return 0
	case !ok:
		f.violations.Addf("grant %s takes %q, which is no item of sale %s", g.OrderID, sku, f.saleID)
	default:
		item.taken += units
	}
	return units
}

// hold adds units to what the grant's user holds.
func (f *Fold) hold(g *sale.Grant, units int64) {
	if g.Kind != sale.GrantGrab {
		return
	}
	h := f.buyers[g.User]
	h.Units += units
	if at := g.At.UnixMilli(); h.OrderID == "" || at > h.at || (at == h.at && g.OrderID > h.OrderID) {
		h.OrderID, h.at = g.OrderID, at
	}
	f.buyers[g.User] = h
}

// count adds units to every counter the grant is counted in; ofUser is for those of
// the user.
func (f *Fold) count(g *sale.Grant, units, ofUser int64) {
	for _, c := range f.rules.Counts(g) {
		w, kept := f.window(c.Limit, g.At)
		if !kept {
			continue
		}
		if c.Limit.Scope == sale.ScopeUser {
			f.used[Counter{w, c.Subject}] += ofUser
		} else {
			f.used[Counter{w, c.Subject}] += units
		}
	}
}

// Finish counts the loose grants that nothing named and returns the state.
func (f *Fold) Finish() (Folded, error) {
	for id, record := range f.loose {
		g, _, err := sale.DecodeGrant(record)
		if err != nil {
			return Folded{}, fmt.Errorf("fold sale %s: grant %s: %w", f.saleID, id, err)
		}
		if g.At.Before(f.since) {
			delete(f.loose, id)
			continue
		}
		var held int64
		for _, l := range g.Lines {
			held += f.take(&g, l.SKU, l.Quantity)
		}
		f.hold(&g, held)
		f.count(&g, held, held)
		if err := f.pass(id, record); err != nil {
			return Folded{}, err
		}
		f.fromLoose++
		delete(f.loose, id) // its memory is wanted for the buyers
	}
	out := Folded{
		Remaining: make(map[string]int64, len(f.items)),
		Buyers:    f.buyers,
		Windows:   f.windows,
		Used:      f.used,
		Givebacks: f.givebacks,
		Grants:    f.grants, FromStream: f.fromLoose,
	}
	for sku, item := range f.items {
		out.Remaining[sku] = f.remaining(sku, item)
	}
	out.Violations = f.violations
	return out, nil
}

// remaining is never negative: nothing can be sold of an item that is oversold.
func (f *Fold) remaining(sku string, item *itemTally) int64 {
	if item.stock == sale.Unlimited {
		return sale.Unlimited
	}
	left := item.stock - item.taken
	if left < 0 {
		f.violations.Addf("item %s is oversold: stock %d, taken %d", sku, item.stock, item.taken)
		return 0
	}
	return left
}

// maxViolations bounds how many violations are told in words.
const maxViolations = 20

// Violations counts what must not be, and tells the first few in words.
type Violations struct {
	Count   int64    `json:"count"`
	Details []string `json:"details,omitempty"`
}

// Addf counts one violation.
func (v *Violations) Addf(format string, args ...any) {
	v.Count++
	if len(v.Details) < maxViolations {
		v.Details = append(v.Details, fmt.Sprintf(format, args...))
	}
}
