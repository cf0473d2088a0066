package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/doorbuster/doorbuster/lua"
)

// State is what the fence found and the sizes of a sale's keys.
type State struct {
	Era        lua.Era
	Generation int64
	Fence      uint64
	Buyers     int64
	Grants     int64
	Applied    int64
	Remaining  map[string]int64 // per SKU asked for, -1 is unlimited
}

// State returns the sale's state when it is loaded, else *NotLoaded.
func (s *Store) State(ctx context.Context, saleID string, skus []string) (State, error) {
	keys := KeysOf(saleID)
	all := keys.core()
	for _, sku := range skus {
		all = append(all, keys.Stock(sku))
	}
	used, err := s.usedKeys(ctx, saleID)
	if err != nil {
		return State{}, fmt.Errorf("inspect sale %s: %w", saleID, err)
	}
	era, reply, err := s.call(ctx, saleID, func(n *names) string { return n.inspect }, append(all, used...), []any{len(skus)})
	if err != nil {
		return State{}, err
	}
	st, err := readState(reply, skus)
	if err != nil {
		return State{}, fmt.Errorf("inspect sale %s: %w", saleID, err)
	}
	st.Era = era
	return st, nil
}

func readState(reply []any, skus []string) (State, error) {
	gen, err1 := numberAt(reply, 1)
	fence, err2 := numberAt(reply, 2)
	buyers, err3 := intAt(reply, 3)
	grants, err4 := intAt(reply, 4)
	applied, err5 := intAt(reply, 5)
	remaining, err6 := remainingAt(reply, 6, skus)
	st := State{
		Generation: gen, Fence: uint64(fence), Buyers: buyers, Grants: grants, Applied: applied, Remaining: remaining,
	}
	return st, errors.Join(err1, err2, err3, err4, err5, err6)
}

// Found is where a grant stands.
type Found struct {
	Stored
	// Durable: the grant's batch is known to be in the stream. That is not known
	// of the grants of a process that was forgotten.
	Durable bool
}

// Find looks an order's grant up. ok is false when the loaded state has none;
// *NotLoaded when there is no trusted state to look in.
func (s *Store) Find(ctx context.Context, saleID, orderID string) (f Found, ok bool, err error) {
	keys := KeysOf(saleID)
	all := append(keys.core(), keys.Outboxes())
	_, reply, err := s.call(ctx, saleID, func(n *names) string { return n.find }, all, []any{orderID})
	if err != nil {
		return Found{}, false, err
	}
	if f, ok, err = readFound(reply); err != nil {
		return Found{}, false, fmt.Errorf("find grant %s: %w", orderID, err)
	}
	return f, ok, nil
}

func readFound(reply []any) (f Found, ok bool, err error) {
	status, err := textAt(reply, 0)
	if err != nil || status == "absent" {
		return Found{}, false, err
	}
	if status != "pending" && status != "durable" {
		return Found{}, false, fmt.Errorf("unknown code %q", status)
	}
	text, err := textAt(reply, 1)
	if err != nil {
		return Found{}, false, err
	}
	f.Stored, err = parseStored(text)
	f.Durable = status == "durable"
	return f, err == nil, err
}

// Holding is what a user holds in a sale.
type Holding struct {
	User    string
	Units   int64
	OrderID string // the user's last order
}

// scanCount is how many entries one scan step asks for.
const scanCount = 1000

// Grants visits the order id and stored grant of every grant, some perhaps
// twice when grants are made meanwhile.
func (s *Store) Grants(ctx context.Context, saleID string, visit func(orderID string, g Stored) error) error {
	return s.scanHash(ctx, KeysOf(saleID).Grants(), func(field, value string) error {
		g, err := parseStored(value)
		if err != nil {
			return fmt.Errorf("grant %s: %w", field, err)
		}
		return visit(field, g)
	})
}

// Holdings visits every user who was granted something, with what they hold now.
func (s *Store) Holdings(ctx context.Context, saleID string, visit func(Holding) error) error {
	return s.scanHash(ctx, KeysOf(saleID).Buyers(), func(user, value string) error {
		units, order, ok := strings.Cut(value, " ")
		n, err := strconv.ParseInt(units, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("holding of a user %q: bad value", value)
		}
		return visit(Holding{User: user, Units: n, OrderID: order})
	})
}

// Used visits the units every subject has used of a limit in a period; the subject
// of a limit of scope sale is "".
func (s *Store) Used(ctx context.Context, saleID, limit, period string, visit func(subject string, units int64) error) error {
	return s.scanHash(ctx, KeysOf(saleID).Used(limit, period), func(subject, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("units used of limit %s: %w", limit, err)
		}
		if ofEverybody(limit) {
			subject = ""
		}
		return visit(subject, n)
	})
}

// usedKeys lists the used keys that meta knows of.
func (s *Store) usedKeys(ctx context.Context, saleID string) ([]string, error) {
	keys := KeysOf(saleID)
	fields, err := s.redis.HKeys(ctx, keys.Meta()).Result()
	if err != nil {
		return nil, fmt.Errorf("list fields of meta: %w", err)
	}
	var used []string
	for _, field := range fields {
		if strings.HasPrefix(field, usedPrefix) {
			used = append(used, keys.base+field)
		}
	}
	return used, nil
}

// Givebacks visits every giveback that was applied, with its units.
func (s *Store) Givebacks(ctx context.Context, saleID string, visit func(id string, units int64) error) error {
	return s.scanHash(ctx, KeysOf(saleID).Applied(), func(id, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("giveback %s: %w", id, err)
		}
		return visit(id, n)
	})
}

func (s *Store) scanHash(ctx context.Context, key string, visit func(field, value string) error) error {
	iter := s.redis.HScan(ctx, key, 0, "", scanCount).Iterator()
	for iter.Next(ctx) {
		field := iter.Val()
		if !iter.Next(ctx) {
			break
		}
		if err := visit(field, iter.Val()); err != nil {
			return err
		}
	}
	return wrapScan(iter.Err(), key)
}

func wrapScan(err error, key string) error {
	if err != nil {
		return fmt.Errorf("scan %s: %w", key, err)
	}
	return nil
}

// Owners visits the order id of every grant, some perhaps twice. It visits
// nothing and answers false when there are more than limit.
func (s *Store) Owners(ctx context.Context, saleID string, limit int64, visit func(orderID string)) (bool, error) {
	n, err := s.redis.HLen(ctx, KeysOf(saleID).Grants()).Result()
	if err != nil {
		return false, fmt.Errorf("count grants of sale %s: %w", saleID, err)
	}
	if n > limit {
		return false, nil
	}
	return true, s.Grants(ctx, saleID, func(orderID string, _ Stored) error {
		visit(orderID)
		return nil
	})
}
