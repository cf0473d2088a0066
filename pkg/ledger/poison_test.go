package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// poisons are grants that can never be recorded in the sale "s".
func poisons() map[string]struct {
	grant sale.Grant
	why   error
} {
	type poison = struct {
		grant sale.Grant
		why   error
	}
	spoilt := func(spoil func(*sale.Grant)) poison {
		g := grab("s", "eve", "poison", "A", 1)
		spoil(&g)
		return poison{g, ledger.ErrInvalidGrant}
	}
	return map[string]poison{
		"unknown sale":       {grab("nowhere", "eve", "1", "A", 1), ledger.ErrUnknownItem},
		"unknown SKU":        {grab("s", "eve", "1", "Z", 1), ledger.ErrUnknownItem},
		"order of elsewhere": spoilt(func(g *sale.Grant) { g.OrderID = "garbage" }),
		"endless order id":   spoilt(func(g *sale.Grant) { g.OrderID = "s." + strings.Repeat("ü", 5000) }),
		"no user":            spoilt(func(g *sale.Grant) { g.User = "" }),
		"binary user":        spoilt(func(g *sale.Grant) { g.User = "\xff\x00" }),
		"long user":          spoilt(func(g *sale.Grant) { g.User = strings.Repeat("u", 129) }),
		"long key":           spoilt(func(g *sale.Grant) { g.Key = strings.Repeat("k", 65) }),
		"long address":       spoilt(func(g *sale.Grant) { g.IP = strings.Repeat("1", 65) }),
		"no lines":           spoilt(func(g *sale.Grant) { g.Lines = nil }),
		"no units":           spoilt(func(g *sale.Grant) { g.Lines[0].Quantity = 0 }),
		"negative units":     spoilt(func(g *sale.Grant) { g.Lines[0].Quantity = -1 }),
		"malformed SKU":      spoilt(func(g *sale.Grant) { g.Lines[0].SKU = "' OR 1" }),
		"SKU twice":          spoilt(func(g *sale.Grant) { g.Lines = append(g.Lines, g.Lines[0]) }),
		"after all time":     spoilt(func(g *sale.Grant) { g.At = time.UnixMilli(1 << 60) }),
		"expires too late":   spoilt(func(g *sale.Grant) { g.ExpiresAt = time.UnixMilli(1 << 60) }),
	}
}

func TestAPoisonedBatchIsRefusedWholeAndThePoisonNamed(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		before := d.fingerprint(t)
		for name, p := range poisons() {
			b := batchOf(1, grab("s", "ann", "1", "A", 1), grab("s", "bob", "1", "A", 1))
			b.Messages[1].Batch.Grants = append(b.Messages[1].Batch.Grants, p.grant)
			if name == "unknown sale" {
				b.Messages[1].SaleID, b.Messages[1].Batch.Grants = "nowhere", []sale.Grant{p.grant}
			}

			_, err := d.Record(t.Context(), b)

			var poison *ledger.PoisonError
			if !errors.As(err, &poison) || len(poison.Grants) != 1 || poison.Grants[0].Grant.OrderID != p.grant.OrderID ||
				poison.Grants[0].Seq != 2 || !errors.Is(poison.Grants[0].Reason, p.why) || !d.Permanent(err) {
				t.Errorf("%s: got %v", name, err)
			}
			equal(t, name+": rows", d.fingerprint(t), before)
		}
	})
}

func TestABuriedGrantNoLongerStopsItsMessage(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		for name, p := range poisons() {
			b := batchOf(1, grab("s", name, "1", "C", 1), p.grant)
			b.Messages[1].SaleID = "s"
			if name == "unknown sale" {
				b.Messages[1].SaleID = "nowhere"
			}
			letter := ledger.DeadLetter{
				SaleID: b.Messages[1].SaleID, OrderID: p.grant.OrderID, StreamID: stream, Seq: 2, Generation: 3,
				Reason: p.why.Error() + strings.Repeat(" ü", 2000), Attempts: 5, Record: sale.AppendGrant(nil, &p.grant),
			}
			for range 2 {
				must(t, d.BuryDead(t.Context(), letter))
			}

			r, err := d.Record(t.Context(), b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			equal(t, name+": orders", r.Orders, 1)
			d.exec(t, "DELETE FROM dead_letters") // Several of these share an order id.
		}
		sound(t, d, "s")
	})
}

// The last guard is the database's own: whatever writes, what does not fit is refused.
func TestTheDatabaseItselfRefusesToOversell(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		for _, change := range []string{"sold = 11, granted = 11", "sold = -1", "sold = 1", "stock = -2", "sold = 5, granted = 5, stock = 4"} {
			if _, err := d.raw.ExecContext(t.Context(), "UPDATE items SET "+change+" WHERE sku = 'A'"); err == nil {
				t.Errorf("the database took %s for a stock of 10", change)
			}
		}
	})
}
