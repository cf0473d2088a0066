package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Batch is what one transaction records.
type Batch struct {
	StreamID int64     // identity of the stream: its creation time, Unix ns
	Messages []Message // in the stream's order
	// Done are the sequences that this transaction completes, fences and
	// messages without grants too. Leave out a message whose grants are not all here.
	Done []Range
}

// Message is one decoded message of the stream.
type Message struct {
	Seq    uint64 // in the stream
	SaleID string // of its subject; its orders must be of this sale
	Batch  sale.Batch
}

// Result counts what became of the grants of a batch.
type Result struct {
	Orders      int // written, live
	Adjustments int // stock reductions written
	Duplicates  int // known already: as an order, an adjustment or a dead letter
	// Rejected are the grants that no stock was left for, by order id. This
	// never happens unless a guarantee broke before: raise an alarm.
	Rejected []string
}

// Record writes the grants of many messages, and that their sequences are
// written, in one transaction: all or nothing. Repeating it changes no row. It
// answers *PoisonError when grants can never be recorded; Permanent tells that
// and every other error that repeating cannot cure.
func (l *Ledger) Record(ctx context.Context, b Batch) (Result, error) {
	entries := b.entries()
	var result Result
	err := l.change(ctx, "record grants", func(tx *gorm.DB) error {
		p, err := l.record(tx, entries, "")
		if err != nil {
			return err
		}
		result = p.result
		return extendProgress(tx, b.StreamID, b.Done)
	})
	if err != nil {
		return Result{}, err
	}
	return result, nil
}

// entry is one grant on its way into the ledger.
type entry struct {
	seq        uint64
	saleID     string
	generation int64
	grant      *sale.Grant
	invalid    error
}

func (b *Batch) entries() []entry {
	var all []entry
	for i := range b.Messages {
		m := &b.Messages[i]
		for j := range m.Batch.Grants {
			all = append(all, newEntry(m.Seq, m.SaleID, m.Batch.Generation, &m.Batch.Grants[j]))
		}
	}
	return all
}

func newEntry(seq uint64, saleID string, generation int64, g *sale.Grant) entry {
	return entry{seq: seq, saleID: saleID, generation: generation, grant: g, invalid: invalidGrant(saleID, g)}
}

// record writes the entries that the ledger does not know yet. A dead letter is
// known, too, except the one that is being replayed. What it answers an error for
// it has not written, though the transaction may go on.
func (l *Ledger) record(tx *gorm.DB, entries []entry, replayed string) (*posting, error) {
	fresh, err := l.unknown(tx, entries, replayed)
	if err != nil {
		return nil, err
	}
	p, err := l.postAll(tx, fresh, replayed, nil)
	if oversold, ok := errors.AsType[*oversoldError](err); ok {
		p, err = l.postAll(tx, fresh, replayed, oversold.orders)
	}
	if err != nil {
		return nil, err
	}
	p.result.Duplicates = len(entries) - len(fresh)
	return p, nil
}

// oversoldError are the orders that no stock was left for.
type oversoldError struct{ orders map[string]bool }

func (e *oversoldError) Error() string {
	return fmt.Sprintf("no stock is left for %d orders", len(e.orders))
}

// postAll writes entries, all or none. The orders among the refused become rejected
// ones; it answers *oversoldError when others have to be.
//
// Orders are the largest rows and are written before the items are locked, so that
// transactions of one SKU write theirs side by side. Whether they get their stock is
// decided under the lock. Their events come after it: who settles events may scan the
// whole table, and must not wait for one that waits for an item.
func (l *Ledger) postAll(tx *gorm.DB, fresh []entry, replayed string, refused map[string]bool) (*posting, error) {
	var p *posting
	err := tx.Transaction(func(tx *gorm.DB) error {
		entered, err := l.enter(tx, fresh, refused)
		if err != nil {
			return err
		}
		limited, err := l.limited(tx, fresh)
		if err != nil {
			return err
		}
		locked, err := l.awaitItems(tx, itemsOf(fresh))
		if err != nil {
			return err
		}
		if err := l.stillAlive(tx, fresh, replayed); err != nil {
			return err
		}
		p = newPosting(locked)
		p.limited, p.events = limited, entered.events
		if err := p.postAll(fresh, refused); err != nil {
			return err
		}
		return l.writePosting(tx, p)
	})
	return p, err
}

// enter writes the orders of the entries, by id. Their events are still to be written.
func (l *Ledger) enter(tx *gorm.DB, fresh []entry, refused map[string]bool) (*posting, error) {
	p := newPosting(nil)
	for _, e := range fresh {
		if e.invalid != nil || e.grant.Kind == sale.GrantAdjust {
			continue
		}
		reason := ""
		if refused[e.grant.OrderID] {
			reason = sale.ReasonOversold
		}
		if err := p.enter(e, reason); err != nil {
			return nil, err
		}
	}
	return p, l.writeOrders(tx, p)
}

func (l *Ledger) writeOrders(tx *gorm.DB, p *posting) error {
	slices.SortFunc(p.orders, func(a, b orderRow) int { return strings.Compare(a.ID, b.ID) })
	if err := insert(tx, p.orders, l.cfg.InsertRows); err != nil {
		return fmt.Errorf("insert orders: %w", err)
	}
	return nil
}

// awaitItems is lockItems for a transaction that has written a lot: it waits for its
// turn again without writing all that again. A wait that was too long undoes the statement
// only; where the server is set to undo the transaction, the savepoint is gone, and
// with it this transaction.
func (l *Ledger) awaitItems(tx *gorm.DB, keys []itemKey) ([]itemRow, error) {
	const turn = "turn"
	for attempt := 1; ; attempt++ {
		if err := tx.SavePoint(turn).Error; err != nil {
			return nil, err
		}
		locked, err := l.lockItems(tx, keys)
		if err == nil || attempt == l.cfg.Attempts || !l.store.waitedInVain(err) || tx.Statement.Context.Err() != nil {
			return locked, err
		}
		if tx.RollbackTo(turn).Error != nil {
			return nil, err
		}
	}
}

// stillAlive answers errStale when an entry has become a dead letter before its items
// were locked. From then on nobody buries it.
func (l *Ledger) stillAlive(tx *gorm.DB, entries []entry, replayed string) error {
	dead, err := l.dead(tx, entries, replayed)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if dead[e.deadKey()] {
			return fmt.Errorf("order %s of sale %s was buried: %w", e.grant.OrderID, e.saleID, errStale)
		}
	}
	return nil
}

// writePosting writes what the locks on its items have decided.
func (l *Ledger) writePosting(tx *gorm.DB, p *posting) error {
	if err := l.writeCounters(tx, p); err != nil {
		return err
	}
	if err := insert(tx, p.flows, l.cfg.InsertRows); err != nil {
		return fmt.Errorf("insert flows: %w", err)
	}
	if err := l.writeEvents(tx, p); err != nil {
		return err
	}
	if err := insert(tx, p.changes, l.cfg.InsertRows); err != nil {
		return fmt.Errorf("insert changes: %w", err)
	}
	for rows := range slices.Chunk(p.changedItems(), l.cfg.InsertRows) {
		// The rows exist: this is an UPDATE of many rows, each with its own values.
		err := tx.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "sale_id"}, {Name: "sku"}},
			DoUpdates: clause.AssignmentColumns([]string{"stock", "granted", "sold"}),
		}).Create(&rows).Error
		if err != nil {
			return fmt.Errorf("update items: %w", err)
		}
	}
	return nil
}

func insert[Row any](tx *gorm.DB, rows []Row, size int) error {
	for chunk := range slices.Chunk(rows, size) {
		if err := tx.Create(&chunk).Error; err != nil {
			return err
		}
	}
	return nil
}

// itemsOf lists the items of the valid entries in lock order, each once.
func itemsOf(entries []entry) []itemKey {
	seen := make(map[itemKey]bool)
	var keys []itemKey
	for _, e := range entries {
		if e.invalid != nil {
			continue
		}
		for _, line := range e.grant.Lines {
			if key := (itemKey{e.saleID, line.SKU}); !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// lockItems locks the rows that exist, by sale and SKU.
func (l *Ledger) lockItems(tx *gorm.DB, keys []itemKey) ([]itemRow, error) {
	slices.SortFunc(keys, itemKey.compare)
	var locked []itemRow
	for len(keys) > 0 {
		saleID := keys[0].saleID
		var skus []string
		for len(keys) > 0 && keys[0].saleID == saleID && len(skus) < l.cfg.InsertRows {
			skus, keys = append(skus, keys[0].sku), keys[1:]
		}
		var rows []itemRow
		err := tx.Table(l.store.locked("items")).Clauses(clause.Locking{Strength: "UPDATE"}).
			Where("sale_id = ? AND sku IN ?", saleID, skus).Order("sale_id, sku").Find(&rows).Error
		if err != nil {
			return nil, fmt.Errorf("lock items of sale %s: %w", saleID, err)
		}
		locked = append(locked, rows...)
	}
	return locked, nil
}

// unknown drops the entries that the ledger knows, and those that repeat an
// earlier entry. What is written meanwhile is found later: an order by its key, a
// dead letter by stillAlive.
func (l *Ledger) unknown(tx *gorm.DB, entries []entry, replayed string) ([]entry, error) {
	known, err := l.known(tx, entries)
	if err != nil {
		return nil, err
	}
	dead, err := l.dead(tx, entries, replayed)
	if err != nil {
		return nil, err
	}
	var fresh []entry
	for _, e := range entries {
		if known[e.grant.OrderID] || dead[e.deadKey()] {
			continue
		}
		known[e.grant.OrderID] = true
		fresh = append(fresh, e)
	}
	return fresh, nil
}

// known returns the ids of orders and adjustments that are written.
func (l *Ledger) known(tx *gorm.DB, entries []entry) (map[string]bool, error) {
	var orders []string
	adjusted := make(map[itemKey][]string)
	for _, e := range entries {
		switch {
		case e.invalid != nil:
		case e.grant.Kind == sale.GrantAdjust:
			key := itemKey{e.saleID, e.grant.Lines[0].SKU}
			adjusted[key] = append(adjusted[key], e.grant.OrderID)
		default:
			orders = append(orders, e.grant.OrderID)
		}
	}
	known := make(map[string]bool, len(entries))
	note := func(ids []string) {
		for _, id := range ids {
			known[id] = true
		}
	}
	for chunk := range slices.Chunk(orders, l.cfg.InsertRows) {
		var ids []string
		if err := tx.Model(&orderRow{}).Where("id IN ?", chunk).Pluck("id", &ids).Error; err != nil {
			return nil, fmt.Errorf("look orders up: %w", err)
		}
		note(ids)
	}
	for key, refs := range adjusted {
		for chunk := range slices.Chunk(refs, l.cfg.InsertRows) {
			var ids []string
			err := tx.Model(&flowRow{}).Where("sale_id = ? AND sku = ? AND kind = ? AND ref IN ?",
				key.saleID, key.sku, sale.FlowAdjust, chunk).Pluck("ref", &ids).Error
			if err != nil {
				return nil, fmt.Errorf("look adjustments up: %w", err)
			}
			note(ids)
		}
	}
	return known, nil
}
