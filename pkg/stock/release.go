package stock

import (
	"context"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Release applies a giveback once, however often it is called. On a sale that
// is not loaded it answers *NotLoaded: the next restore counts the giveback,
// because the ledger decided it.
func (s *Store) Release(ctx context.Context, g sale.Giveback) error {
	keys := KeysOf(g.SaleID)
	all := keys.core()
	args := []any{g.ID, g.User, len(g.Lines)}
	for _, l := range g.Lines {
		all = append(all, keys.Stock(l.SKU))
		args = append(args, l.Quantity)
	}
	for _, c := range g.Counts {
		all = append(all, keys.Used(c.Limit, c.Period))
		args = append(args, storedSubject(c.Limit, c.Subject), c.Units)
	}
	_, reply, err := s.call(ctx, g.SaleID, func(n *names) string { return n.release }, all, args)
	if err != nil {
		return err
	}
	switch status, err := textAt(reply, 0); {
	case err != nil:
		return err
	case status != "applied" && status != "known":
		return fmt.Errorf("release %s in sale %s: unknown code %q", g.ID, g.SaleID, status)
	}
	return nil
}
