package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// DeadStatus is what became of a dead letter.
type DeadStatus string

// The states of a dead letter. Only an open one holds stock.
const (
	DeadOpen      DeadStatus = "open"
	DeadReplayed  DeadStatus = "replayed"
	DeadCancelled DeadStatus = "cancelled"
)

// DeadLetter is a grant that the order worker gave up on, or a whole message
// that could not be read.
type DeadLetter struct {
	SaleID string
	// OrderID names it in its sale; for a message, whatever the worker chooses. What
	// cannot stand in an id is stored as "dead-" and a hash of it.
	OrderID    string
	StreamID   int64
	Seq        uint64 // of its message
	Generation int64  // of its batch
	Reason     string
	Attempts   int
	Record     []byte // as sale.AppendGrant wrote it, or the message
	Status     DeadStatus
	At         time.Time // when it was buried
}

// Grant decodes the record.
func (d *DeadLetter) Grant() (sale.Grant, error) {
	g, rest, err := sale.DecodeGrant(d.Record)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: it is more than one record", sale.ErrCorrupt)
	}
	if err != nil {
		return sale.Grant{}, fmt.Errorf("dead letter %s of sale %s: %w", d.OrderID, d.SaleID, err)
	}
	return g, nil
}

type deadKey struct{ saleID, orderID string }

// deadName is the id a dead letter is stored under.
func deadName(id string) string {
	if id != "" && printable(id, sale.MaxOrderIDLen) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "dead-" + hex.EncodeToString(sum[:16])
}

// deadSale is the same for the sale's id, which comes from a subject.
func deadSale(id string) string {
	if printable(id, sale.MaxIDLen) {
		return id
	}
	return deadName(id + "\x00")
}

// BuryDead keeps a grant that cannot be recorded. From then on Record drops it
// as a duplicate, so that its message can be finished. Burying again changes nothing;
// nor does burying what is recorded, perhaps by another who had more luck.
func (l *Ledger) BuryDead(ctx context.Context, d DeadLetter) error {
	at := now()
	row := deadLetterRow{
		SaleID: deadSale(d.SaleID), OrderID: deadName(d.OrderID), StreamID: d.StreamID, Seq: int64(d.Seq),
		Generation: d.Generation, Reason: fit(d.Reason, maxDeadReason), Attempts: d.Attempts,
		Record: append([]byte{}, d.Record...), Status: DeadOpen, At: at, UpdatedAt: at,
	}
	return l.change(ctx, "bury dead letter", func(tx *gorm.DB) error {
		if g, err := d.Grant(); err == nil {
			recorded, err := l.recorded(tx, newEntry(d.Seq, d.SaleID, d.Generation, &g))
			if err != nil || recorded {
				return err
			}
		}
		return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error
	})
}

// recorded locks the items of a grant and reports whether an order or an
// adjustment of it is written.
func (l *Ledger) recorded(tx *gorm.DB, e entry) (bool, error) {
	entries := []entry{e}
	if _, err := l.lockItems(tx, itemsOf(entries)); err != nil {
		return false, err
	}
	known, err := l.known(tx, entries)
	return known[e.grant.OrderID], err
}

// dead returns which entries have a dead letter, in whatever state, but for the one
// that is being replayed.
func (l *Ledger) dead(tx *gorm.DB, entries []entry, replayed string) (map[deadKey]bool, error) {
	dead := make(map[deadKey]bool)
	sales, err := l.salesWithDead(tx, entries)
	if err != nil {
		return nil, err
	}
	for _, saleID := range sales {
		var ids []string
		for _, e := range entries {
			if key := e.deadKey(); key.saleID == saleID && key.orderID != replayed {
				ids = append(ids, key.orderID)
			}
		}
		for chunk := range slices.Chunk(ids, l.cfg.InsertRows) {
			var found []string
			err := tx.Model(&deadLetterRow{}).Where("sale_id = ? AND order_id IN ?", saleID, chunk).Pluck("order_id", &found).Error
			if err != nil {
				return nil, fmt.Errorf("look dead letters of sale %s up: %w", saleID, err)
			}
			for _, id := range found {
				dead[deadKey{saleID, id}] = true
			}
		}
	}
	return dead, nil
}

// salesWithDead returns those of the entries' sales that have dead letters. Hardly any
// has, and to ask for that takes less than to send the ids of a thousand orders.
func (l *Ledger) salesWithDead(tx *gorm.DB, entries []entry) ([]string, error) {
	seen := make(map[string]bool)
	for _, e := range entries {
		seen[deadSale(e.saleID)] = true
	}
	var found []string
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(seen)), l.cfg.InsertRows) {
		var ids []string
		if err := tx.Model(&deadLetterRow{}).Distinct("sale_id").Where("sale_id IN ?", chunk).Pluck("sale_id", &ids).Error; err != nil {
			return nil, fmt.Errorf("look for sales with dead letters: %w", err)
		}
		found = append(found, ids...)
	}
	return found, nil
}

func (e *entry) deadKey() deadKey { return deadKey{deadSale(e.saleID), deadName(e.grant.OrderID)} }

// ReplayDead records an open dead letter as if its message came now. Replaying
// again changes nothing. It answers ErrNotFound, *DeadStatusError when it was
// cancelled, and what Record answers.
func (l *Ledger) ReplayDead(ctx context.Context, saleID, orderID string) (Result, error) {
	var result Result
	err := l.settleDead(ctx, saleID, orderID, DeadReplayed, func(tx *gorm.DB, d DeadLetter) error {
		g, err := d.Grant()
		if err != nil {
			return err
		}
		p, err := l.record(tx, []entry{newEntry(d.Seq, d.SaleID, d.Generation, &g)}, d.OrderID)
		if err != nil {
			return err
		}
		result = p.result
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	return result, nil
}

// CancelDead gives the stock of an open dead letter back. A grab is recorded
// and cancelled at once, so that its owner sees the order and the flows tell
// what happened. What cannot be recorded leaves no flow: an adjustment, whose
// stock comes back as if it had never been taken, and a grab of an unknown item,
// which becomes a rejected order when its id allows. The giveback is to be
// applied in Redis; it is nil when nothing can come back: the record cannot be
// read, an order or a flow has it, or the ledger has no room for it. Cancelling again
// changes nothing and returns the same. It answers ErrNotFound, and
// *DeadStatusError when the letter was replayed.
func (l *Ledger) CancelDead(ctx context.Context, saleID, orderID, actor, reason string) (*sale.Giveback, error) {
	var giveback *sale.Giveback
	err := l.settleDead(ctx, saleID, orderID, DeadCancelled, func(tx *gorm.DB, d DeadLetter) error {
		g, err := d.Grant()
		if errors.Is(err, sale.ErrCorrupt) {
			return nil
		}
		e := newEntry(d.Seq, d.SaleID, d.Generation, &g)
		giveback, err = l.cancelDeadGrant(tx, e, d.OrderID, cancellation(g.OrderID, actor, reason))
		return err
	})
	if err != nil {
		return nil, err
	}
	if giveback == nil {
		return l.findGiveback(ctx, saleID, sale.GivebackID(sale.FlowCancel, orderID))
	}
	return giveback, nil
}

// settleDead moves an open dead letter to another state and does what that
// means. In that state already, it does nothing.
func (l *Ledger) settleDead(ctx context.Context, saleID, orderID string, to DeadStatus, do func(*gorm.DB, DeadLetter) error) error {
	what := fmt.Sprintf("dead letter %s of sale %s to %s", orderID, saleID, to)
	return l.change(ctx, what, func(tx *gorm.DB) error {
		key := tx.Where("sale_id = ? AND order_id = ?", saleID, orderID).Session(&gorm.Session{})
		found, err := take[deadLetterRow](key)
		if err != nil {
			return err
		}
		// Items are locked before dead letters.
		letter := found.deadLetter()
		if g, err := letter.Grant(); err == nil {
			if _, err := l.lockItems(tx, itemsOf([]entry{newEntry(0, saleID, 0, &g)})); err != nil {
				return err
			}
		}
		row, err := take[deadLetterRow](key.Clauses(clause.Locking{Strength: "UPDATE"}))
		if err != nil {
			return err
		}
		switch row.Status {
		case to:
			return nil
		case DeadOpen:
		default:
			return &DeadStatusError{SaleID: saleID, OrderID: orderID, Status: row.Status}
		}
		if err := do(tx, letter); err != nil {
			return err
		}
		return key.Model(&deadLetterRow{}).UpdateColumns(map[string]any{"status": to, "updated_at": now()}).Error
	})
}

// cancelDeadGrant decides the giveback of a dead grant, if there is one.
func (l *Ledger) cancelDeadGrant(tx *gorm.DB, e entry, letter string, c comeback) (*sale.Giveback, error) {
	if e.grant.Kind == sale.GrantAdjust {
		recorded, err := l.recorded(tx, e)
		if err != nil || recorded {
			return nil, err // its flow stays true, and nothing comes back
		}
		return l.giveUnrecordedBack(tx, e, letter)
	}
	p, err := l.record(tx, []entry{e}, letter)
	var poison *PoisonError
	switch {
	case errors.As(err, &poison):
		if err := l.rejectOrder(tx, e); err != nil {
			return nil, err
		}
		return l.giveUnrecordedBack(tx, e, letter)
	case err != nil:
		return nil, err
	case p.result.Orders == 0:
		// An order has it already, or there was no stock for it to come back to.
		return nil, nil
	}
	_, g, err := l.giveBack(tx, e.grant.OrderID, c)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// giveUnrecordedBack decides a giveback of what only Redis has deducted. Of an
// invalid grant only what Redis can have taken comes back.
func (l *Ledger) giveUnrecordedBack(tx *gorm.DB, e entry, letter string) (*sale.Giveback, error) {
	g := sale.Giveback{ID: sale.GivebackID(sale.FlowCancel, letter), SaleID: e.saleID}
	if printable(e.grant.User, sale.MaxUserLen) {
		g.User = e.grant.User
	}
	if e.invalid == nil && e.grant.Kind == sale.GrantGrab {
		g.OrderID = e.grant.OrderID
	}
	for _, line := range e.grant.Lines {
		if sale.ValidSKU(line.SKU) && line.Quantity > 0 {
			g.Lines = append(g.Lines, line)
		}
	}
	// Redis alone has counted it; all of that comes off, since nobody ever had an order.
	if e.invalid == nil {
		limited, err := l.limited(tx, []entry{e})
		if err != nil {
			return nil, err
		}
		if s := limited[e.saleID]; s != nil {
			g.Counts = giveCounts(s, e.grant, e.grant.Units(), false)
		}
	}
	if err := l.writeGivebacks(tx, []sale.Giveback{g}); err != nil {
		return nil, err
	}
	return &g, nil
}

// rejectOrder lets the owner of a grab that cannot be recorded see it.
func (l *Ledger) rejectOrder(tx *gorm.DB, e entry) error {
	if e.invalid != nil {
		return nil //nolint:nilerr // a grant that no row can hold has no order to show
	}
	p := newPosting(nil)
	if err := p.enter(e, sale.ReasonAdmin); err != nil {
		return err
	}
	if err := l.writeOrders(tx, p); err != nil {
		return err
	}
	return l.writeEvents(tx, p)
}

func (r *deadLetterRow) deadLetter() DeadLetter {
	return DeadLetter{
		SaleID: r.SaleID, OrderID: r.OrderID, StreamID: r.StreamID, Seq: uint64(r.Seq), Generation: r.Generation,
		Reason: r.Reason, Attempts: r.Attempts, Record: r.Record, Status: r.Status, At: r.At,
	}
}

// GetDead returns one dead letter, or ErrNotFound.
func (l *Ledger) GetDead(ctx context.Context, saleID, orderID string) (DeadLetter, error) {
	row, err := take[deadLetterRow](l.read.WithContext(ctx).Where("sale_id = ? AND order_id = ?", saleID, orderID))
	if err != nil {
		return DeadLetter{}, fmt.Errorf("dead letter %s of sale %s: %w", orderID, saleID, err)
	}
	return row.deadLetter(), nil
}

// ListDead returns the dead letters of a sale with an order id above after, at
// most limit (1 to PageMax), in any state. The last one's OrderID is the next after.
func (l *Ledger) ListDead(ctx context.Context, saleID, after string, limit int) ([]DeadLetter, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	var rows []deadLetterRow
	err := l.read.WithContext(ctx).Where("sale_id = ? AND order_id > ?", saleID, after).
		Order("order_id").Limit(limit).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("list dead letters of sale %s: %w", saleID, err)
	}
	letters := make([]DeadLetter, len(rows))
	for i := range rows {
		letters[i] = rows[i].deadLetter()
	}
	return letters, nil
}
