package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// itemKey names a row of items.
type itemKey struct{ saleID, sku string }

func (a itemKey) compare(b itemKey) int {
	return cmp.Or(strings.Compare(a.saleID, b.saleID), strings.Compare(a.sku, b.sku))
}

// posting is what one transaction is about to write. It does no I/O: the items
// are the rows the transaction has locked, and it alone may change them.
type posting struct {
	at      time.Time
	items   map[itemKey]*itemRow
	changed map[itemKey]bool
	limited map[string]*sale.Sale // the sales whose limits count grabs, by id
	orders  []orderRow
	counts  []countStep
	changes []changeRow
	flows   []flowRow
	events  []eventRow
	result  Result
}

func newPosting(locked []itemRow) *posting {
	p := &posting{at: now(), items: make(map[itemKey]*itemRow, len(locked)), changed: make(map[itemKey]bool)}
	for i := range locked {
		p.items[itemKey{locked[i].SaleID, locked[i].SKU}] = &locked[i]
	}
	return p
}

// changedItems returns the rows to write, in lock order.
func (p *posting) changedItems() []itemRow {
	rows := make([]itemRow, 0, len(p.changed))
	for _, key := range slices.SortedFunc(maps.Keys(p.changed), itemKey.compare) {
		rows = append(rows, *p.items[key])
	}
	return rows
}

// move changes an item and appends the flow that tells of it; a change of its whole
// stock stands in the sale's history, too.
func (p *posting) move(item *itemRow, f flowRow, change func(*itemRow)) {
	f.SaleID, f.SKU, f.At = item.SaleID, item.SKU, p.at
	stock := item.Stock
	f.QtyBefore = item.remaining()
	change(item)
	f.QtyAfter = item.remaining()
	if item.Stock != stock {
		p.changes = append(p.changes, newChange(item.SaleID, fieldStock(item), strconv.FormatInt(stock, 10),
			strconv.FormatInt(item.Stock, 10), Cause{f.Actor, f.Reason}, p.at))
	}
	f.QtyStep = f.QtyAfter - f.QtyBefore
	p.flows = append(p.flows, f)
	p.changed[itemKey{item.SaleID, item.SKU}] = true
}

// postAll adds grants that the ledger does not know yet. It answers *PoisonError for those
// that can never be written, and *oversoldError for orders that no stock is left for
// and that are not refused already.
func (p *posting) postAll(fresh []entry, refused map[string]bool) error {
	var poison PoisonError
	over := make(map[string]bool)
	for _, e := range fresh {
		if refused[e.grant.OrderID] {
			p.result.Rejected = append(p.result.Rejected, e.grant.OrderID)
			continue
		}
		fits, err := p.post(e)
		if err != nil {
			poison.Grants = append(poison.Grants, PoisonGrant{
				Seq: e.seq, SaleID: e.saleID, Generation: e.generation, Grant: *e.grant, Reason: err,
			})
		} else if !fits {
			over[e.grant.OrderID] = true
		}
	}
	switch {
	case len(poison.Grants) > 0:
		return &poison
	case len(over) > 0:
		return &oversoldError{over}
	}
	return nil
}

// post adds one grant, unless it is a grab that does not fit. The error is permanent.
func (p *posting) post(e entry) (fits bool, err error) {
	if e.invalid != nil {
		return false, e.invalid
	}
	g := e.grant
	items := make([]*itemRow, len(g.Lines))
	fits = true
	for i, l := range g.Lines {
		item := p.items[itemKey{e.saleID, l.SKU}]
		if item == nil {
			return false, fmt.Errorf("%w: sale %s, SKU %s", ErrUnknownItem, e.saleID, l.SKU)
		}
		items[i] = item
		fits = fits && (item.unlimited() || item.remaining() >= l.Quantity)
	}
	if g.Kind == sale.GrantAdjust {
		p.adjustDown(g, items[0], fits) // an adjustment has one line
		return true, nil
	}
	if !fits {
		return false, nil
	}
	p.result.Orders++
	f := flowRow{Kind: sale.FlowGrab, Ref: g.OrderID, OrderID: g.OrderID, UserID: g.User}
	p.count(p.limited[e.saleID], g, f)
	for i, l := range g.Lines {
		p.move(items[i], f, func(item *itemRow) {
			item.Granted += l.Quantity
			item.Sold += l.Quantity
		})
	}
	return true, nil
}

// enter adds the order of a grab and the event that it is there; one that is refused,
// for whatever reason, as rejected.
func (p *posting) enter(e entry, refused string) error {
	g := e.grant
	lines := make([]sale.OrderLine, len(g.Lines))
	for i, l := range g.Lines {
		lines[i].Line = l
	}
	encoded, err := encodeLines(lines)
	if err != nil {
		return err
	}
	order := orderRow{
		ID: g.OrderID, SaleID: e.saleID, UserID: g.User, IdempotencyKey: g.Key, IP: g.IP,
		Status: sale.OrderPendingPayment, Items: encoded, Generation: e.generation,
		CreatedAt: stored(g.At), ExpiresAt: storedOrNull(g.ExpiresAt), UpdatedAt: p.at,
	}
	told := sale.EventCreated
	if refused != "" {
		order.Status, order.Reason, told = sale.OrderRejected, refused, sale.EventRejected
	}
	if refused == "" && sale.IsQuotaSale(e.saleID) {
		order.Status = sale.OrderFulfilled // a deduction asks for nothing more
	}
	p.orders = append(p.orders, order)
	return p.tell(told, &sale.Order{
		ID: order.ID, SaleID: order.SaleID, User: order.UserID, Status: order.Status, Lines: lines,
		CreatedAt: order.CreatedAt, UpdatedAt: order.UpdatedAt, ExpiresAt: order.ExpiresAt.Time, Reason: order.Reason,
	}, "")
}

// adjustDown lowers the stock. One that does not fit, or whose stock became unlimited
// while it was on its way, is noted by a flow of zero units, so that it is not
// tried again, even if the stock has a bound again by then.
func (p *posting) adjustDown(g *sale.Grant, item *itemRow, fits bool) {
	actor, reason := g.AdjustmentNote()
	switch {
	case !fits:
		p.result.Rejected = append(p.result.Rejected, g.OrderID)
		reason = "rejected: " + reason
	case item.unlimited():
		reason, fits = "no effect on unlimited stock: "+reason, false
	default:
		p.result.Adjustments++
	}
	f := flowRow{Kind: sale.FlowAdjust, Ref: g.OrderID, Actor: fit(actor, maxActor), Reason: fit(reason, sale.MaxReasonLen)}
	p.move(item, f, func(item *itemRow) {
		if fits {
			item.Stock -= g.Lines[0].Quantity
		}
	})
}

// Bounds of text in characters; see schema.sql.
const (
	maxActor      = 128
	maxDeadReason = 1000
	maxRef        = 128
)

// fit makes text fit for a column of n characters.
func fit(text string, n int) string {
	text = strings.ToValidUTF8(text, "?")
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n])
}
