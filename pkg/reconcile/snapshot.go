package reconcile

import (
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// origin is where in the ledger a grant was found.
type origin int

const (
	fromOrder origin = iota
	fromDeadLetter
	fromSettled
)

// ledger adds everything a snapshot has of the sale, but of a quota only what is
// remembered, and tells note of each grant; the order is nil for all but orders. Dead
// letters come first: an order may hold the same grant by now.
func (f *Fold) ledger(snap *ledger.Snapshot, note func(from origin, orderID string, o *sale.Order)) error {
	orders := snap.Orders
	if !f.since.IsZero() {
		orders = func(visit func(*sale.Order) error) error { return snap.OrdersSince(f.since, visit) }
	}
	return f.read(snap, orders, note)
}

// read is ledger with all the orders that orders visits.
func (f *Fold) read(snap *ledger.Snapshot, orders func(func(*sale.Order) error) error,
	note func(from origin, orderID string, o *sale.Order)) error {
	err := snap.DeadLetters(func(d *ledger.DeadLetter) error {
		if g, err := d.Grant(); err == nil {
			note(fromDeadLetter, g.OrderID, nil)
			f.Loose(&g)
		} else {
			note(fromDeadLetter, d.OrderID, nil)
			f.violations.Addf("dead letter %s can't be read: what it holds is not known", d.OrderID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := snap.KeptUnits(f.since, func(orderID string, units int64) error {
		f.Kept(orderID, units)
		return nil
	}); err != nil {
		return err
	}
	if err := orders(func(o *sale.Order) error {
		note(fromOrder, o.ID, o)
		return f.Order(o)
	}); err != nil {
		return err
	}
	if err := snap.Settled(func(g *sale.Grant) error {
		note(fromSettled, g.OrderID, nil)
		return f.Settled(g)
	}); err != nil {
		return err
	}
	return snap.GivebacksSince(f.since, func(id string, units int64) error {
		f.Giveback(id, units)
		return nil
	})
}
