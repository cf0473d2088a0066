package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Raw is what stands in a sale's keys, whether it is to be trusted or not. It
// is read in one round trip, but not in one step: for people and reports only.
type Raw struct {
	Era        string // empty: the sale is not loaded
	Generation int64
	Fence      uint64
	Buyers     int64 // users who were granted something
	Grants     int64
	Applied    int64
	// Remaining has the units left per SKU that has a stock key; -1 is unlimited.
	Remaining map[string]int64
}

// Raw reads the sizes of a sale's keys. Keys that do not exist count as empty.
func (s *Store) Raw(ctx context.Context, saleID string, skus []string) (Raw, error) {
	keys := KeysOf(saleID)
	pipe := s.redis.Pipeline()
	meta := pipe.HMGet(ctx, keys.Meta(), "era", "gen", "fence")
	buyers, grants, applied := pipe.HLen(ctx, keys.Buyers()), pipe.HLen(ctx, keys.Grants()), pipe.HLen(ctx, keys.Applied())
	left := make([]*redis.StringCmd, len(skus))
	for i, sku := range skus {
		left[i] = pipe.Get(ctx, keys.Stock(sku))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return Raw{}, fmt.Errorf("read sizes of sale %s: %w", saleID, err)
	}
	raw := Raw{
		Buyers: buyers.Val(), Grants: grants.Val(), Applied: applied.Val(),
		Remaining: make(map[string]int64, len(skus)),
	}
	fields := meta.Val()
	raw.Era, _ = fields[0].(string)
	gen, _ := fields[1].(string)
	fence, _ := fields[2].(string)
	// What is no number counts as missing: the state is not trusted anyway.
	raw.Generation, _ = strconv.ParseInt(gen, 10, 64)
	raw.Fence, _ = strconv.ParseUint(fence, 10, 64)
	for i, sku := range skus {
		if n, err := left[i].Int64(); err == nil {
			raw.Remaining[sku] = n
		}
	}
	return raw, nil
}
