package ledger

import (
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// invalidGrant says why no grab of this sale can have made the grant. What it
// lets pass fits into the columns of schema.sql.
func invalidGrant(saleID string, g *sale.Grant) error {
	owner, _, ok := sale.ParseOrderID(g.OrderID)
	switch {
	case !ok:
		return fmt.Errorf("%w: malformed order id", ErrInvalidGrant)
	case owner != saleID:
		return fmt.Errorf("%w: its order id is of sale %s, its message of sale %q", ErrInvalidGrant, owner, saleID)
	case g.At.Year() < 1970 || g.At.Year() > 9999 || g.ExpiresAt.Year() > 9999:
		return fmt.Errorf("%w: its time is out of range", ErrInvalidGrant)
	}
	if g.Kind == sale.GrantGrab {
		switch {
		case g.User == "" || !printable(g.User, sale.MaxUserLen):
			return fmt.Errorf("%w: its user must be 1 to %d printable ASCII characters", ErrInvalidGrant, sale.MaxUserLen)
		case !printable(g.Key, sale.MaxKeyLen):
			return fmt.Errorf("%w: its key must be at most %d printable ASCII characters", ErrInvalidGrant, sale.MaxKeyLen)
		case !printable(g.IP, sale.MaxIPLen):
			return fmt.Errorf("%w: its address must be at most %d printable ASCII characters", ErrInvalidGrant, sale.MaxIPLen)
		}
	}
	return invalidLines(g)
}

func invalidLines(g *sale.Grant) error {
	if len(g.Lines) == 0 || len(g.Lines) > sale.MaxLines {
		return fmt.Errorf("%w: it must have 1 to %d lines", ErrInvalidGrant, sale.MaxLines)
	}
	if g.Kind == sale.GrantAdjust && len(g.Lines) != 1 {
		return fmt.Errorf("%w: an adjustment must have one line", ErrInvalidGrant)
	}
	most := int64(sale.MaxQuantity)
	if g.Kind == sale.GrantAdjust {
		most = sale.MaxStock
	}
	for i, l := range g.Lines {
		switch {
		case !sale.ValidSKU(l.SKU):
			return fmt.Errorf("%w: malformed SKU", ErrInvalidGrant)
		case l.Quantity < 1 || l.Quantity > most:
			return fmt.Errorf("%w: quantity %d of SKU %s is out of range", ErrInvalidGrant, l.Quantity, l.SKU)
		case l.PriceCents < 0 || l.PriceCents > sale.MaxPriceCents:
			return fmt.Errorf("%w: price %d of SKU %s is out of range", ErrInvalidGrant, l.PriceCents, l.SKU)
		}
		for _, earlier := range g.Lines[:i] {
			if earlier.SKU == l.SKU {
				return fmt.Errorf("%w: SKU %s stands twice", ErrInvalidGrant, l.SKU)
			}
		}
	}
	return nil
}

// printable reports whether s is at most limit printable ASCII characters.
func printable(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
