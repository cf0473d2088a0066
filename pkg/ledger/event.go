package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Event is what happened to an order, on its way to the event stream.
type Event struct {
	Seq     int64 // grows with every event of one order
	ID      string
	SaleID  string
	OrderID string
	Kind    sale.EventKind
	Body    []byte // the JSON of a sale.Event
	At      time.Time
}

// tell appends the event that something happened to the order, which is as it is
// after it. The event is written in the transaction of what it tells of. ref tells
// events of one kind and order apart, such as the id of a return; it is empty where
// there can be one only. Of a quota's deductions nobody is told.
func (p *posting) tell(kind sale.EventKind, o *sale.Order, ref string) error {
	if sale.IsQuotaSale(o.SaleID) {
		return nil
	}
	body, err := encodeEvent(kind, o, ref, p.at)
	if err != nil {
		return err
	}
	p.events = append(p.events, eventRow{SaleID: o.SaleID, OrderID: o.ID, Kind: kind, Body: string(body), At: p.at})
	return nil
}

func encodeEvent(kind sale.EventKind, o *sale.Order, ref string, at time.Time) ([]byte, error) {
	body, err := json.Marshal(sale.Event{ID: eventID(kind, o.ID, ref), Type: "order." + string(kind), At: at, Data: *o})
	if err != nil {
		return nil, fmt.Errorf("encode event %s of order %s: %w", kind, o.ID, err)
	}
	return body, nil
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

// Events returns the oldest events that are not settled, at most limit (1 to
// PageMax). Those of one order come in the order in which they happened; an event of
// another order may still appear before one that was returned.
func (l *Ledger) Events(ctx context.Context, limit int) ([]Event, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	var rows []eventRow
	if err := l.read.WithContext(ctx).Order("seq").Limit(limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	events := make([]Event, len(rows))
	for i, r := range rows {
		events[i] = Event{Seq: r.Seq, SaleID: r.SaleID, OrderID: r.OrderID, Kind: r.Kind, Body: []byte(r.Body), At: r.At}
		var named struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(events[i].Body, &named); err != nil {
			return nil, fmt.Errorf("read event %d of order %s: %w", r.Seq, r.OrderID, err)
		}
		events[i].ID = named.ID
	}
	return events, nil
}

// SettleEvents takes events that are on the stream out of the ledger, and in the same
// transaction queues the deliveries that they make due and drops those of orders
// that have ended. It returns how many deliveries are due. Repeating it changes nothing.
func (l *Ledger) SettleEvents(ctx context.Context, events []Event) (int, error) {
	var due []deliveryRow
	err := l.change(ctx, "settle events", func(tx *gorm.DB) error {
		var err error
		if due, err = l.dueDeliveries(tx, events); err != nil {
			return err
		}
		for chunk := range slices.Chunk(due, l.cfg.InsertRows) {
			if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&chunk).Error; err != nil {
				return fmt.Errorf("insert deliveries: %w", err)
			}
		}
		for chunk := range slices.Chunk(endedOrders(events), l.cfg.InsertRows) {
			if err := dropDeliveries(tx, chunk); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(events, l.cfg.InsertRows) {
			seqs := make([]int64, len(chunk))
			for i, e := range chunk {
				seqs[i] = e.Seq
			}
			if err := tx.Where("seq IN ?", seqs).Delete(&eventRow{}).Error; err != nil {
				return fmt.Errorf("delete events: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(due), nil
}

// triggers says which triggers an event answers to. An order of a sale whose orders
// are sent when they are created may be older than this rule: it is sent when it is
// paid. One that was sent has its delivery already.
var triggers = map[sale.EventKind][]sale.FulfilmentTrigger{
	sale.EventCreated: {sale.FulfilCreated},
	sale.EventPaid:    {sale.FulfilPaid, sale.FulfilCreated},
}

// dueDeliveries lists the deliveries that the sales' rules ask for and that are not
// there yet, by order id.
func (l *Ledger) dueDeliveries(tx *gorm.DB, events []Event) ([]deliveryRow, error) {
	ids := make(map[string]bool)
	for _, e := range events {
		if triggers[e.Kind] != nil {
			ids[e.SaleID] = true
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	sales, err := saleHeaders(tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return nil, err
	}
	at, err := l.clock(tx)
	if err != nil {
		return nil, err
	}
	due := make(map[string]deliveryRow)
	for _, e := range events {
		s := sales[e.SaleID]
		if s == nil || s.Fulfilment == nil || !slices.Contains(triggers[e.Kind], s.Fulfilment.Trigger) {
			continue
		}
		if _, earlier := due[e.OrderID]; !earlier {
			due[e.OrderID] = newDelivery(e.OrderID, s, e.Body, at)
		}
	}
	orders := slices.Sorted(maps.Keys(due))
	for chunk := range slices.Chunk(orders, l.cfg.InsertRows) {
		var known []string
		if err := tx.Model(&deliveryRow{}).Where("order_id IN ?", chunk).Pluck("order_id", &known).Error; err != nil {
			return nil, fmt.Errorf("look deliveries up: %w", err)
		}
		for _, id := range known {
			delete(due, id)
		}
	}
	rows := make([]deliveryRow, 0, len(due))
	for _, id := range orders {
		if row, missing := due[id]; missing {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// endedOrders lists the orders of which an event says that they ended, by id.
func endedOrders(events []Event) []string {
	var ids []string
	for _, e := range events {
		switch e.Kind {
		case sale.EventCancelled, sale.EventExpired, sale.EventRejected:
			ids = append(ids, e.OrderID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
