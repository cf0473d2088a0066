package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// StockChange makes the stock of an item unlimited, or gives unlimited stock a bound.
type StockChange struct {
	SaleID, SKU string
	Stock       int64  // units in all, what is sold among them; sale.Unlimited for no bound
	Ref         string // names the change in its item, at most 128 printable ASCII characters
	Actor       string
	Reason      string
}

// StockSet is what came of a StockChange, as it stands in the ledger.
type StockSet struct {
	Before, After int64 // the whole stock; sale.Unlimited for no bound
	Asked         int64
	Reason        string
	Flow          sale.Flow
	Replayed      bool // the ledger had it already
}

// Grants are those of one item that the ledger may not have written yet, by order id.
type Grants map[string]Loose

// Loose is what one grant takes of the item.
type Loose struct {
	Units     int64
	Reduction *sale.Grant // the grant, when it is a reduction of the stock; nil for a grab
}

// SetStock changes the stock of an item from or to unlimited, once per Ref. A bound is
// never below what is sold. What is sold includes grabs that are on their way to the
// ledger. A reduction that is on its way was meant for the stock there was before: a
// bound settles it, as one without effect, and whatever brings it later, the stream or a dead
// letter, finds it written.
//
// So the caller says which grants may be on their way, and guarantees that there can be no others: it
// has ended every generation before this one, and none of this one has begun to sell.
// It has recorded its generation by SetGeneration; whoever begins a later one does so, too,
// before he reads the ledger, and therefore reads the new stock, or makes this
// call fail with ErrOvertaken.
//
// It answers ErrNotFound, *SaleStatusError for a sale that is neither approved nor
// paused, ErrUnknownItem, ErrLimited when neither the old stock nor the new one
// is unlimited, ErrRefReused when the Ref belongs to another change, and a
// *sale.FieldError. Asking for what is so already changes nothing, and is not kept.
func (l *Ledger) SetStock(ctx context.Context, c StockChange, generation int64, loose Grants) (StockSet, error) {
	switch {
	case c.Ref == "" || !printable(c.Ref, maxRef):
		return StockSet{}, &sale.FieldError{Field: "ref", Message: fmt.Sprintf("must be 1 to %d printable ASCII characters", maxRef)}
	case c.Stock < sale.Unlimited || c.Stock > sale.MaxStock:
		return StockSet{}, &sale.FieldError{Field: "stock", Message: fmt.Sprintf("must be -1 (unlimited) or 0 to %d", sale.MaxStock)}
	}
	what := fmt.Sprintf("set stock of %s of sale %s", c.SKU, c.SaleID)
	// Most are written by now; the rest is looked up again under the item's lock.
	left, err := l.unsettled(l.read.WithContext(ctx), itemKey{c.SaleID, c.SKU}, loose)
	if err != nil {
		return StockSet{}, fmt.Errorf("%s: %w", what, err)
	}
	var set StockSet
	err = l.change(ctx, what, func(tx *gorm.DB) (err error) {
		set, err = l.setStock(tx, c, generation, left)
		return err
	})
	return set, err
}

func (l *Ledger) setStock(tx *gorm.DB, c StockChange, generation int64, loose Grants) (StockSet, error) {
	row, err := take[saleRow](tx.Clauses(clause.Locking{Strength: "UPDATE"}).Where("id = ?", c.SaleID))
	if err != nil {
		return StockSet{}, err
	}
	items, err := l.lockItems(tx, []itemKey{{c.SaleID, c.SKU}})
	if err != nil {
		return StockSet{}, err
	}
	if len(items) == 0 {
		return StockSet{}, ErrUnknownItem
	}
	item := &items[0]
	done, err := findStockSet(tx, c.SaleID, c.SKU, c.Ref)
	switch {
	case err == nil && (done.Asked != c.Stock || done.Reason != c.plainReason()):
		return StockSet{}, ErrRefReused
	case !errors.Is(err, ErrNotFound):
		return done, err
	case row.Generation > generation:
		return StockSet{}, ErrOvertaken
	case row.Status != sale.StatusApproved && row.Status != sale.StatusPaused:
		return StockSet{}, &SaleStatusError{SaleID: c.SaleID, Status: row.Status}
	case item.Stock == c.Stock:
		return StockSet{Before: item.Stock, After: item.Stock, Asked: c.Stock, Reason: c.Reason}, nil
	case !item.unlimited() && c.Stock != sale.Unlimited:
		return StockSet{}, ErrLimited
	}
	set := StockSet{Before: item.Stock, After: c.Stock, Asked: c.Stock, Reason: c.plainReason()}
	p := newPosting(items)
	if c.Stock != sale.Unlimited {
		onTheWay, err := l.onTheWay(tx, c, loose)
		if err != nil {
			return StockSet{}, err
		}
		units := onTheWay.settle(p, item)
		set.After = max(c.Stock, item.Sold+units)
	}
	f := flowRow{Kind: sale.FlowStock, Ref: c.Ref, Actor: fit(c.Actor, maxActor), Reason: set.note()}
	p.move(item, f, func(item *itemRow) { item.Stock = set.After })
	p.changes[0].Reason = set.Reason // it says from what to what by itself
	set.Flow = p.flows[len(p.flows)-1].flow()
	return set, l.writePosting(tx, p)
}

// onTheWay returns the grants that the ledger does not have: those of the caller, and
// open dead letters. The item is locked: nobody is writing one.
func (l *Ledger) onTheWay(tx *gorm.DB, c StockChange, loose Grants) (Grants, error) {
	loose = maps.Clone(loose)
	if loose == nil {
		loose = make(Grants)
	}
	var letters []deadLetterRow
	if err := tx.Where("sale_id = ? AND status = ?", c.SaleID, DeadOpen).Find(&letters).Error; err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	for i := range letters {
		letter := letters[i].deadLetter()
		if g, err := letter.Grant(); err == nil { // of a message that can't be read nobody knows what it holds
			loose.Add(&g, c.SKU)
		}
	}
	return l.unsettled(tx, itemKey{c.SaleID, c.SKU}, loose)
}

// Add adds what a grant takes of an item.
func (g Grants) Add(grant *sale.Grant, sku string) {
	for _, line := range grant.Lines {
		if line.SKU != sku {
			continue
		}
		taken := Loose{Units: line.Quantity}
		if grant.Kind == sale.GrantAdjust {
			reduction := *grant
			taken.Reduction = &reduction
		}
		g[grant.OrderID] = taken
	}
}

// settle posts the reductions, while the stock is still unlimited, so that none of them
// has an effect, and returns the units of the other grants. A reduction that no row can hold
// takes stock like a grab: what it took comes back when its dead letter is cancelled.
func (g Grants) settle(p *posting, item *itemRow) int64 {
	var units int64
	for _, id := range slices.Sorted(maps.Keys(g)) {
		taken := g[id]
		if taken.Reduction == nil || invalidGrant(item.SaleID, taken.Reduction) != nil {
			units += taken.Units
			continue
		}
		p.adjustDown(taken.Reduction, item, true)
	}
	return units
}

// unsettled returns those of the grants that the ledger has neither as an order,
// whose units it counts if it holds any, nor as a reduction, which the item's stock
// contains if it had an effect, nor as a dead letter that was cancelled.
func (l *Ledger) unsettled(db *gorm.DB, of itemKey, grants Grants) (Grants, error) {
	left := maps.Clone(grants)
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(grants)), l.cfg.InsertRows) {
		var orders, reductions, cancelled []string
		if err := db.Model(&orderRow{}).Where("id IN ?", ids).Pluck("id", &orders).Error; err != nil {
			return nil, fmt.Errorf("look orders up: %w", err)
		}
		err := db.Model(&flowRow{}).Where("sale_id = ? AND sku = ? AND counter = '' AND kind = ? AND ref IN ?",
			of.saleID, of.sku, sale.FlowAdjust, ids).Pluck("ref", &reductions).Error
		if err != nil {
			return nil, fmt.Errorf("look adjustments up: %w", err)
		}
		err = db.Model(&deadLetterRow{}).Where("sale_id = ? AND order_id IN ? AND status = ?", of.saleID, ids, DeadCancelled).
			Pluck("order_id", &cancelled).Error
		if err != nil {
			return nil, fmt.Errorf("look dead letters up: %w", err)
		}
		for _, id := range slices.Concat(orders, reductions, cancelled) {
			delete(left, id)
		}
	}
	return left, nil
}

// stockNote ends the reason in the log: a line's numbers do not tell unlimited
// stock from none.
var stockNote = regexp.MustCompile(`(?s)^(.*) \(stock from (unlimited|\d+) to (unlimited|\d+)(?:, asked for (\d+))?\)$`)

// maxStockNote is more than the longest note has characters.
const maxStockNote = 80

// plainReason is as much of the reason as the log keeps.
func (c *StockChange) plainReason() string { return fit(c.Reason, sale.MaxReasonLen-maxStockNote) }

func (s *StockSet) note() string {
	note := fmt.Sprintf("stock from %s to %s", stockText(s.Before), stockText(s.After))
	if s.Asked != s.After {
		note += fmt.Sprintf(", asked for %d", s.Asked)
	}
	return s.Reason + " (" + note + ")"
}

func stockText(units int64) string {
	if units == sale.Unlimited {
		return "unlimited"
	}
	return strconv.FormatInt(units, 10)
}

func stockUnits(text string) int64 {
	units, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return sale.Unlimited // the pattern lets nothing else through
	}
	return units
}

// StockSet looks a change from or to unlimited stock up. It answers ErrNotFound.
func (l *Ledger) StockSet(ctx context.Context, saleID, sku, ref string) (StockSet, error) {
	set, err := findStockSet(l.read.WithContext(ctx), saleID, sku, ref)
	if err != nil {
		return StockSet{}, fmt.Errorf("change %s of the stock of %s of sale %s: %w", ref, sku, saleID, err)
	}
	return set, nil
}

func findStockSet(db *gorm.DB, saleID, sku, ref string) (StockSet, error) {
	row, err := take[flowRow](db.Where("sale_id = ? AND sku = ? AND counter = '' AND kind = ? AND ref = ?", saleID, sku, sale.FlowStock, ref))
	if err != nil {
		return StockSet{}, err
	}
	m := stockNote.FindStringSubmatch(row.Reason)
	if m == nil {
		return StockSet{}, fmt.Errorf("flow %d does not say what it changed", row.Seq)
	}
	set := StockSet{Reason: m[1], Before: stockUnits(m[2]), After: stockUnits(m[3]), Flow: row.flow(), Replayed: true}
	set.Asked = set.After
	if m[4] != "" {
		set.Asked = stockUnits(m[4])
	}
	return set, nil
}
