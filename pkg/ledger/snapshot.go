package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// Snapshot is one sale at one moment: everything it returns is of the same
// state of the ledger. It streams rows, so memory does not grow with a sale's orders. Its
// methods are called one after the other, from the callback of ReadSnapshot only.
type Snapshot struct {
	tx         *gorm.DB
	store      database
	sale       sale.Sale
	items      []itemRow
	generation int64
	floor      uint64
	floorAt    int64
}

// ReadSnapshot calls read with a snapshot of the sale. firstSeq is the first
// sequence that the stream still has. It answers ErrNotFound, and what read answers.
func (l *Ledger) ReadSnapshot(ctx context.Context, saleID string, streamID int64, firstSeq uint64, read func(*Snapshot) error) error {
	err := l.consistent(ctx, func(tx *gorm.DB) error {
		s, err := l.newSnapshot(tx, saleID, streamID, firstSeq)
		if err != nil {
			return err
		}
		return read(s)
	})
	if err != nil {
		return fmt.Errorf("snapshot of sale %s: %w", saleID, err)
	}
	return nil
}

// consistent runs a transaction in which every read sees the same state.
func (l *Ledger) consistent(ctx context.Context, read func(tx *gorm.DB) error) error {
	return l.audit.WithContext(ctx).Transaction(read, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
}

func (l *Ledger) newSnapshot(tx *gorm.DB, saleID string, streamID int64, firstSeq uint64) (*Snapshot, error) {
	row, err := take[saleRow](tx.Where("id = ?", saleID))
	if err != nil {
		return nil, err
	}
	s := &Snapshot{tx: tx, store: l.store, generation: row.Generation}
	if err := tx.Where("sale_id = ?", saleID).Order("position").Find(&s.items).Error; err != nil {
		return nil, err
	}
	if s.sale, err = row.sale(s.items); err != nil {
		return nil, err
	}
	done, err := progressOf(tx, streamID)
	if err != nil {
		return nil, err
	}
	s.floor, s.floorAt = Floor(done, firstSeq)
	return s, nil
}

// Sale is the sale; its items' stock contains every adjustment of the ledger.
func (s *Snapshot) Sale() sale.Sale { return s.sale }

// Items are the counts of the sale's items, in its order.
func (s *Snapshot) Items() []ItemTotals { return itemTotals(s.items) }

// Generation is the highest that was given out for the sale.
func (s *Snapshot) Generation() int64 { return s.generation }

// Floor is a sequence up to which, from the stream's first on, every message is
// written. The ledger may hold later ones, too.
func (s *Snapshot) Floor() uint64 { return s.floor }

// FloorAt is the stream's time of the message Floor, in Unix ns; 0 when nothing is
// written from the stream's first on. A stream whose message there is of another
// time, or that has none, is not the one that was written.
func (s *Snapshot) FloorAt() int64 { return s.floorAt }

// Orders visits every order of the sale, in any state.
func (s *Snapshot) Orders(visit func(*sale.Order) error) error {
	return s.visitOrders(ofSale(s.tx.Model(&orderRow{}), s.sale.ID), visit)
}

// OrdersSince visits the orders that were granted at since or later. It reads no others.
func (s *Snapshot) OrdersSince(since time.Time, visit func(*sale.Order) error) error {
	query := s.tx.Table(s.store.by("orders", "orders_by_created")).
		Where("sale_id = ? AND created_at >= ?", s.sale.ID, stored(since))
	return s.visitOrders(query, visit)
}

func (s *Snapshot) visitOrders(query *gorm.DB, visit func(*sale.Order) error) error {
	query = query.Select(
		"id", "user_id", "idempotency_key", "ip", "status", "items", "generation", "created_at", "expires_at", "reason",
		"late_payment_at", "updated_at")
	var items sql.RawBytes
	var expires, late sql.NullTime
	err := eachRow(query, func(scan scanner) error {
		o := sale.Order{SaleID: s.sale.ID}
		err := scan(&o.ID, &o.User, &o.Key, &o.IP, &o.Status, &items, &o.Generation, &o.CreatedAt, &expires, &o.Reason,
			&late, &o.UpdatedAt)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(items, &o.Lines); err != nil {
			return fmt.Errorf("items of order %s: %w", o.ID, err)
		}
		o.ExpiresAt, o.LatePaymentAt = expires.Time, late.Time
		return visit(&o)
	})
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	return nil
}

// GivebacksSince visits the givebacks of the sale that were decided at since or later,
// applied in Redis or not. The zero time is ever.
func (s *Snapshot) GivebacksSince(since time.Time, visit func(id string, units int64) error) error {
	return visitGivebacks(s.tx, s.sale.ID, since, visit)
}

// KeptUnits visits the orders whose units came back and yet stay counted against
// their users, with how many do; see sale.Rules.NoRegrab. It reads the givebacks that
// were decided at since or later; the zero time is ever.
func (s *Snapshot) KeptUnits(since time.Time, visit func(orderID string, units int64) error) error {
	query := s.tx.Model(&givebackRow{}).Select("order_id", "SUM(units)").
		Where("sale_id = ? AND user_id = '' AND order_id <> ''", s.sale.ID).Group("order_id")
	if !since.IsZero() {
		query = query.Where("decided_at >= ?", stored(since))
	}
	err := eachRow(query, func(scan scanner) error {
		var id string
		var units int64
		if err := scan(&id, &units); err != nil {
			return err
		}
		return visit(id, units)
	})
	if err != nil {
		return fmt.Errorf("read units that stay counted: %w", err)
	}
	return nil
}

// Counters visits every counter of the sale's limits, named as in sale.Count.
func (s *Snapshot) Counters(visit func(limit, period, subject string, used int64) error) error {
	if err := visitCounters(s.tx, s.sale.ID, visit); err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	return nil
}

// DeadLetters visits the open dead letters of the sale: they hold stock that
// only Redis and the stream know of. One that is a whole message has no grant to decode.
func (s *Snapshot) DeadLetters(visit func(*DeadLetter) error) error {
	return s.visitDead(s.tx.Where("sale_id = ? AND status = ?", s.sale.ID, DeadOpen), visit)
}

func (s *Snapshot) visitDead(query *gorm.DB, visit func(*DeadLetter) error) error {
	query = query.Model(&deadLetterRow{}).Select(
		"sale_id", "order_id", "stream_id", "seq", "generation", "reason", "attempts", "record", "status", "at")
	err := eachRow(query, func(scan scanner) error {
		var d DeadLetter
		var seq int64
		err := scan(&d.SaleID, &d.OrderID, &d.StreamID, &seq, &d.Generation, &d.Reason, &d.Attempts, &d.Record, &d.Status, &d.At)
		if err != nil {
			return err
		}
		d.Seq = uint64(seq)
		return visit(&d)
	})
	if err != nil {
		return fmt.Errorf("read dead letters: %w", err)
	}
	return nil
}

// Settled visits the grants that the ledger has dealt with otherwise than by an
// order: the reductions of stock it has written, which the items' stock contains,
// and the dead letters that were cancelled without one. Each id comes once, and none
// of them is an order's. Of a reduction that the ledger refused the quantity is 0.
func (s *Snapshot) Settled(visit func(*sale.Grant) error) error {
	if err := s.reductions(visit); err != nil {
		return fmt.Errorf("read adjustments: %w", err)
	}
	cancelled := s.tx.Where("sale_id = ? AND status = ?", s.sale.ID, DeadCancelled).
		Where("NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = dead_letters.order_id)").
		Where("NOT EXISTS (SELECT 1 FROM flows WHERE flows.sale_id = dead_letters.sale_id AND flows.sku IN ?"+
			" AND flows.counter = '' AND flows.kind = ? AND flows.ref = dead_letters.order_id)", s.skus(), sale.FlowAdjust)
	return s.visitDead(cancelled, func(d *DeadLetter) error {
		g, err := d.Grant()
		if err != nil {
			return nil //nolint:nilerr // a message that could not be read settles nothing
		}
		return visit(&g)
	})
}

func (s *Snapshot) skus() []string {
	skus := make([]string, len(s.items))
	for i, item := range s.items {
		skus[i] = item.SKU
	}
	return skus
}

func (s *Snapshot) reductions(visit func(*sale.Grant) error) error {
	query := s.tx.Model(&flowRow{}).Select("ref", "sku", "qty_step", "actor", "reason", "at").
		Where("sale_id = ? AND sku IN ? AND counter = '' AND kind = ? AND qty_step <= 0", s.sale.ID, s.skus(), sale.FlowAdjust)
	return eachRow(query, func(scan scanner) error {
		g := sale.Grant{Kind: sale.GrantAdjust, Lines: make([]sale.Line, 1)}
		var actor, reason string
		if err := scan(&g.OrderID, &g.Lines[0].SKU, &g.Lines[0].Quantity, &actor, &reason, &g.At); err != nil {
			return err
		}
		g.Lines[0].Quantity = -g.Lines[0].Quantity
		g.Key = sale.AdjustmentNote(actor, reason)
		return visit(&g)
	})
}
