package stock

import (
	"context"
	"fmt"
	"time"
)

// Clock is the time on the server that holds the sale: its keys expire by that.
func (s *Store) Clock(ctx context.Context, saleID string) (time.Time, error) {
	node, err := s.master(ctx, KeysOf(saleID).Meta())
	if err != nil {
		return time.Time{}, err
	}
	at, err := node.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of redis: %w", err)
	}
	return at, nil
}
