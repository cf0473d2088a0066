package ledger

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// tell appends the event that something happened to the order, which is as it is
// after it. The event is written in the transaction of what it tells of. ref tells
// events of one kind and order apart, such as the id of a return; it is empty where
// there can be one only.
func (p *posting) tell(kind sale.EventKind, o *sale.Order, ref string) error {
	body, err := json.Marshal(sale.Event{ID: eventID(kind, o.ID, ref), Type: "order." + string(kind), At: p.at, Data: *o})
	if err != nil {
		return fmt.Errorf("encode event %s of order %s: %w", kind, o.ID, err)
	}
	p.events = append(p.events, eventRow{SaleID: o.SaleID, OrderID: o.ID, Kind: kind, Body: string(body), At: p.at})
	return nil
}

// eventID is the same however often the event is written or sent. It has no full
// stop unless ref has one: a webhook's signature joins its parts with them.
func eventID(kind sale.EventKind, orderID, ref string) string {
	parts := []string{"evt", strings.ReplaceAll(orderID, ".", "_"), string(kind)}
	if ref != "" {
		parts = append(parts, ref)
	}
	return strings.Join(parts, "_")
}

// writeEvents writes the events in the order in which they were told, unless the
// configuration wants none.
func (l *Ledger) writeEvents(tx *gorm.DB, p *posting) error {
	if l.cfg.NoEvents {
		return nil
	}
	if err := insert(tx, p.events, l.cfg.InsertRows); err != nil {
		return fmt.Errorf("insert events: %w", err)
	}
	return nil
}
