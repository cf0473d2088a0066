package stock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hold keeps the process's lease for ttl: while it exists, others leave the
// process's outboxes alone. Publishing an outbox twice does no harm; the lease
// only saves the work.
func (s *Store) Hold(ctx context.Context, process string, ttl time.Duration) error {
	if err := s.redis.Set(ctx, ProcessLease(process), "1", ttl).Err(); err != nil {
		return fmt.Errorf("hold lease of process %s: %w", process, err)
	}
	return nil
}

// Leave gives the process's lease up.
func (s *Store) Leave(ctx context.Context, process string) error {
	if err := s.redis.Del(ctx, ProcessLease(process)).Err(); err != nil {
		return fmt.Errorf("leave lease of process %s: %w", process, err)
	}
	return nil
}

// Alive reports whether the process holds its lease.
func (s *Store) Alive(ctx context.Context, process string) (bool, error) {
	n, err := s.redis.Exists(ctx, ProcessLease(process)).Result()
	if err != nil {
		return false, fmt.Errorf("look for process %s: %w", process, err)
	}
	return n == 1, nil
}

// Outboxes returns, per process that ever sold in this sale and was not
// forgotten, the number of its last batch known to be in the stream.
func (s *Store) Outboxes(ctx context.Context, saleID string) (map[string]uint64, error) {
	all, err := s.redis.HGetAll(ctx, KeysOf(saleID).Outboxes()).Result()
	if err != nil {
		return nil, fmt.Errorf("list outboxes of sale %s: %w", saleID, err)
	}
	out := make(map[string]uint64, len(all))
	for process, text := range all {
		acked, _, _ := strings.Cut(text, " ")
		if out[process], err = strconv.ParseUint(acked, 10, 64); err != nil {
			return nil, fmt.Errorf("outboxes of sale %s: process %s: %w", saleID, process, err)
		}
	}
	return out, nil
}

// Outbox returns up to limit batches of a process, oldest first.
func (s *Store) Outbox(ctx context.Context, saleID, process string, limit int64) ([][]byte, error) {
	list, err := s.redis.LRange(ctx, KeysOf(saleID).Outbox(process), -limit, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read outbox of process %s in sale %s: %w", process, saleID, err)
	}
	out := make([][]byte, len(list))
	for i, text := range list {
		out[len(list)-1-i] = []byte(text)
	}
	return out, nil
}

// Trim takes batches off an outbox.
type Trim struct {
	SaleID  string
	Process string
	Through uint64 // number of the last batch to take off, with all before it
	Durable bool   // they are in the stream; false: they were fenced out
	Forget  bool   // forget the process when its outbox is then empty
	// Bar refuses every batch up to this number that Redis has not decided yet.
	Bar uint64
}

// Trim carries a trim out and returns how many batches are left. It may be
// repeated.
func (s *Store) Trim(ctx context.Context, t Trim) (left int64, err error) {
	keys := KeysOf(t.SaleID)
	acked, forget := "", "0"
	if t.Durable {
		acked = strconv.FormatUint(t.Through, 10)
	}
	if t.Forget {
		forget = "1"
	}
	left, err = s.trim.Run(ctx, s.redis, []string{keys.Outbox(t.Process), keys.Outboxes()},
		t.Process, t.Through, acked, forget, t.Bar).Int64()
	if err != nil {
		return 0, fmt.Errorf("trim outbox of process %s in sale %s: %w", t.Process, t.SaleID, err)
	}
	return left, nil
}

// pipeline runs fn's commands in one round trip.
func (s *Store) pipeline(ctx context.Context, what string, fn func(redis.Pipeliner)) error {
	pipe := s.redis.Pipeline()
	fn(pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
