package stock

import (
	"context"
	"fmt"
)

// Drop frees what Redis holds of a sale that is over, but for its outboxes. A
// restore brings it back.
func (s *Store) Drop(ctx context.Context, saleID string, skus []string) error {
	keys := KeysOf(saleID)
	all, err := s.usedKeys(ctx, saleID)
	if err != nil {
		return fmt.Errorf("drop sale %s: %w", saleID, err)
	}
	all = append(append(all, keys.core()...), keys.Rate())
	for _, sku := range skus {
		all = append(all, keys.Stock(sku))
	}
	if err := s.redis.Unlink(ctx, all...).Err(); err != nil {
		return fmt.Errorf("drop sale %s: %w", saleID, err)
	}
	return nil
}
