package reconcile

import (
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Emit takes one grant of the folded state; record is as sale.AppendGrant
// writes it. It is called once per order id.
type Emit func(orderID string, record []byte) error

// Fold unites what the ledger says about a sale with the part of the stream the
// ledger may not have written yet. It does no I/O. Call Loose for every grant
// that may have no order, then Order, Settled and Giveback for what the ledger
// holds, then Finish. Reading too much of the stream is harmless: an order id
// counts once.
//
// It keeps in memory the loose grants, one entry per user, and the ids of the
// givebacks. The grants of the ledger pass through to Emit.
type Fold struct {
	saleID     string
	emit       Emit
	items      map[string]*itemTally
	buyers     map[string]Holding
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
	// Buyers has every user who holds at least one unit.
	Buyers map[string]Holding
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
	OrderID string // the last order that holds some of them

	at int64 // when that order was granted, Unix ms
}

// NewFold starts the fold of a sale as the ledger defines it: the items' stock
// contains every adjustment the ledger has written.
func NewFold(s *sale.Sale, emit Emit) *Fold {
	f := &Fold{
		saleID: s.ID, emit: emit,
		items:     make(map[string]*itemTally, len(s.Items)),
		buyers:    make(map[string]Holding),
		loose:     make(map[string][]byte),
		givebacks: make(map[string]int64),
	}
	for _, it := range s.Items {
		f.items[it.SKU] = &itemTally{stock: it.Stock}
	}
	return f
}

// Loose adds a grant that may have no order in the ledger: one of the stream's
// tail, or an open dead letter. It holds stock unless Order or Settled names it.
func (f *Fold) Loose(g *sale.Grant) {
	if _, known := f.loose[g.OrderID]; !known {
		f.loose[g.OrderID] = sale.AppendGrant(nil, g)
	}
}

// Order adds an order of the ledger. One that is not live holds nothing, but its
// grant stays known, so that its idempotency key goes on naming it: that holds
// for cancelled, expired and rejected orders alike.
func (f *Fold) Order(o *sale.Order) error {
	g := sale.Grant{
		Kind: sale.GrantGrab, OrderID: o.ID, User: o.User, Key: o.Key, IP: o.IP, At: o.CreatedAt, ExpiresAt: o.ExpiresAt,
		Lines: make([]sale.Line, len(o.Lines)),
	}
	for i, l := range o.Lines {
		g.Lines[i] = l.Line
		if o.Status.Live() {
			f.take(&g, l.SKU, l.Quantity-l.Returned)
		}
	}
	return f.settle(&g)
}

// Settled adds a grant that the ledger has dealt with otherwise than by an order,
// and that holds nothing beyond what the items' stock contains: an adjustment
// it has written, or a dead letter that was cancelled.
func (f *Fold) Settled(g *sale.Grant) error { return f.settle(g) }

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

// take holds units of an item for the grant.
func (f *Fold) take(g *sale.Grant, sku string, units int64) {
	item, ok := f.items[sku]
	switch {
	case !ok:
		f.violations.Addf("grant %s takes %q, which is no item of sale %s", g.OrderID, sku, f.saleID)
	case units < 0:
		f.violations.Addf("order %s has %d units more of %q returned than granted", g.OrderID, -units, sku)
		return
	default:
		item.taken += units
	}
	if g.Kind != sale.GrantGrab || units == 0 {
		return
	}
	h := f.buyers[g.User]
	h.Units += units
	if at := g.At.UnixMilli(); h.OrderID == "" || at > h.at || (at == h.at && g.OrderID > h.OrderID) {
		h.OrderID, h.at = g.OrderID, at
	}
	f.buyers[g.User] = h
}

// Finish counts the loose grants that nothing named and returns the state.
func (f *Fold) Finish() (Folded, error) {
	for id, record := range f.loose {
		g, _, err := sale.DecodeGrant(record)
		if err != nil {
			return Folded{}, fmt.Errorf("fold sale %s: grant %s: %w", f.saleID, id, err)
		}
		for _, l := range g.Lines {
			f.take(&g, l.SKU, l.Quantity)
		}
		if err := f.pass(id, record); err != nil {
			return Folded{}, err
		}
		f.fromLoose++
		delete(f.loose, id) // its memory is wanted for the buyers
	}
	out := Folded{
		Remaining: make(map[string]int64, len(f.items)),
		Buyers:    f.buyers,
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
