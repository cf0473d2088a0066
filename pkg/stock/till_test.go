package stock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// till is one sale in Redis and one process that sells it.
type till struct {
	t      tester
	client redis.UniversalClient
	store  *stock.Store
	minter *stock.Minter
	id     string
	keys   stock.Keys
	era    lua.Era
	gen    int64
	fence  uint64
	number uint64 // of the last batch
}

const process = "p1"

// tester is what a test, a benchmark and a property have in common.
type tester interface {
	rapid.TB
	Context() context.Context
}

// openTill restores a fresh sale: a minted era, generation 1 under fence 7.
func openTill(t testing.TB, client redis.UniversalClient, remaining map[string]int64) *till {
	t.Helper()
	return openTillAs(t, harness.Name(t), client, remaining)
}

func openTillAs(t tester, id string, client redis.UniversalClient, remaining map[string]int64) *till {
	t.Helper()
	store := stock.New(client)
	s := &till{
		t: t, client: client, store: store, minter: stock.NewMinter(store), id: id, keys: stock.KeysOf(id),
		gen: 0, fence: 6,
	}
	s.restore(remaining)
	return s
}

// units is the most common sale: one item.
func units(n int64) map[string]int64 { return map[string]int64{"A": n} }

// restore begins the next generation with these units left and, when given, what
// fill adds.
func (s *till) restore(remaining map[string]int64, fill ...func(*stock.Restore) error) {
	s.t.Helper()
	if err := s.tryRestore(remaining, fill...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *till) tryRestore(remaining map[string]int64, fill ...func(*stock.Restore) error) error {
	era, err := s.minter.Era(s.t.Context(), s.id)
	if err != nil {
		return err
	}
	r := s.store.BeginRestore(s.id, 2)
	for _, f := range fill {
		if err := f(r); err != nil {
			return err
		}
	}
	err = r.Commit(s.t.Context(), stock.Target{Era: era, Generation: s.gen + 1, Fence: s.fence + 1, Remaining: remaining})
	if err == nil {
		s.era, s.gen, s.fence = era, s.gen+1, s.fence+1
	}
	return err
}

// ask reads "USER ORDER SKU:QUANTITY SKU:QUANTITY...", user "-" for an adjustment.
func ask(text string) stock.Ask {
	f := strings.Fields(text)
	g := &sale.Grant{
		Kind: sale.GrantGrab, OrderID: f[1], User: f[0], Key: "key of " + f[1], IP: "127.0.0.1",
		At: time.UnixMilli(1_700_000_000_000).UTC(), ExpiresAt: time.UnixMilli(1_700_000_060_000).UTC(),
	}
	if g.User == "-" {
		g.Kind, g.User, g.ExpiresAt = sale.GrantAdjust, "", time.Time{}
	}
	for _, part := range f[2:] {
		sku, quantity, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(quantity, 10, 64)
		if err != nil {
			panic("bad ask " + text)
		}
		g.Lines = append(g.Lines, sale.Line{SKU: sku, Quantity: n, PriceCents: 999})
	}
	return stock.Ask{Grant: g, Record: sale.AppendGrant(nil, g)}
}

// batch is the next batch of the till's process.
func (s *till) batch(perUser int64, asks ...string) stock.Batch {
	s.number++
	b := stock.Batch{SaleID: s.id, PerUser: perUser, Process: process, Number: s.number}
	for _, text := range asks {
		b.Asks = append(b.Asks, ask(text))
	}
	return b
}

// grab decides a batch and requires these answers (see answerText).
func (s *till) grab(want string, perUser int64, asks ...string) stock.Decision {
	s.t.Helper()
	return s.decide(want, s.batch(perUser, asks...))
}

func (s *till) decide(want string, b stock.Batch) stock.Decision {
	s.t.Helper()
	d, err := s.store.Grab(s.t.Context(), b)
	if err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for _, a := range d.Answers {
		got = append(got, answerText(a))
	}
	if strings.Join(got, " ") != want {
		s.t.Fatalf("got answers %q, want %q", strings.Join(got, " "), want)
	}
	return d
}

// answerText is the code and its detail: W, R(GEN/PROCESS/NUMBER), A(ORDER),
// L(UNITS), S(SKU).
func answerText(a stock.Answer) string {
	switch a.Code {
	case stock.CodeReplayed:
		return fmt.Sprintf("R(%s/%d)", a.Replay.Process, a.Replay.Number)
	case stock.CodeAlreadyGrabbed:
		return "A(" + a.OrderID + ")"
	case stock.CodeLimit:
		return fmt.Sprintf("L(%d)", a.Held)
	case stock.CodeCount:
		return "C(" + a.Limit + ")"
	case stock.CodeSoldOut:
		return "S(" + a.SKU + ")"
	default:
		return string(a.Code)
	}
}

// requireRefused requires a grab to answer *NotLoaded for this reason and to
// change nothing.
func (s *till) requireRefused(reason string) {
	s.t.Helper()
	before := s.dump()
	_, err := s.store.Grab(s.t.Context(), s.batch(1, fmt.Sprintf("zoe zoe%d A:1", s.number)))
	requireReason(s.t, err, reason)
	if after := s.dump(); after != before {
		s.t.Fatalf("a refused grab left\n%s\nof\n%s", after, before)
	}
}

func requireReason(t tester, err error, reason string) {
	t.Helper()
	var refused *stock.NotLoaded
	if !errors.As(err, &refused) || refused.Reason != reason {
		t.Fatalf("got error %v, want not loaded: %s", err, reason)
	}
}

// requireKeys requires the raw keys of the sale to be these lines of dump; the
// order does not matter.
func (s *till) requireKeys(want ...string) {
	s.t.Helper()
	slices.Sort(want)
	if got := s.dump(); got != strings.Join(want, "\n") {
		s.t.Fatalf("raw keys\n%s\n\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// dump shows every raw key of the sale as "NAME TYPE VALUE", sorted, with
// "expires" at the end when the key has a TTL. Era, grants and batches are shown
// as what they mean, once they are seen to be the right bytes.
func (s *till) dump() string {
	s.t.Helper()
	ctx, base := s.t.Context(), strings.TrimSuffix(s.keys.Meta(), "meta")
	names := scan(s.t, s.client, base+"*")
	var lines []string
	for _, key := range names {
		kind, ttl := must(s.client.Type(ctx, key).Result())(s.t), must(s.client.TTL(ctx, key).Result())(s.t)
		line := strings.TrimPrefix(key, base) + " " + kind + " " + s.value(key, kind)
		if ttl != -1 {
			line += " expires"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// scan lists the keys like pattern on every server behind client.
func scan(t tester, client redis.UniversalClient, pattern string) []string {
	t.Helper()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		node := must(cluster.MasterForKey(t.Context(), strings.TrimSuffix(pattern, "*")))(t)
		return must(node.Keys(t.Context(), pattern).Result())(t)
	}
	return must(client.Keys(t.Context(), pattern).Result())(t)
}

func (s *till) value(key, kind string) string {
	s.t.Helper()
	ctx := s.t.Context()
	var parts []string
	switch kind {
	case "string":
		return must(s.client.Get(ctx, key).Result())(s.t)
	case "hash":
		all := must(s.client.HGetAll(ctx, key).Result())(s.t)
		for _, field := range slices.Sorted(maps.Keys(all)) {
			parts = append(parts, field+"="+s.fieldText(all[field]))
		}
	case "list":
		for _, entry := range must(s.client.LRange(ctx, key, 0, -1).Result())(s.t) {
			parts = append(parts, batchText(s.t, entry))
		}
	default:
		s.t.Fatalf("key %s is a %s", key, kind)
	}
	return strings.Join(parts, ", ")
}

// fieldText shows a grant as "PROCESS NUMBER|KIND ORDER USER SKU:QUANTITY" and
// the sale's era as ERA.
func (s *till) fieldText(value string) string {
	s.t.Helper()
	if value == string(s.era) {
		return "ERA"
	}
	head, record, ok := strings.Cut(value, "\n")
	if !ok {
		return value
	}
	g, rest, err := sale.DecodeGrant([]byte(record))
	if err != nil || len(rest) > 0 {
		s.t.Fatalf("stored grant %q: %v, %d bytes too many", value, err, len(rest))
	}
	return head + "|" + grantText(g)
}

func grantText(g sale.Grant) string {
	text := fmt.Sprintf("%c %s %s", g.Kind, g.OrderID, g.User)
	for _, l := range g.Lines {
		text += fmt.Sprintf(" %s:%d", l.SKU, l.Quantity)
	}
	return text
}

// batchText shows a batch as "HEAD ORDER ORDER..." once it is seen to be exactly
// what sale.EncodeBatch writes.
func batchText(t tester, entry string) string {
	t.Helper()
	b, err := sale.DecodeBatch([]byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	if again := string(sale.EncodeBatch(b)); again != entry {
		t.Fatalf("batch %q, encoded again %q", entry, again)
	}
	text := fmt.Sprintf("%d/%d/%d/%s", b.Generation, b.Fence, b.Number, b.Process)
	for _, g := range b.Grants {
		text += " " + g.OrderID
	}
	return text
}

// writes counts the changes a server made to its data since it started.
func writes(t tester, client redis.UniversalClient) int64 {
	t.Helper()
	info := must(client.InfoMap(t.Context(), "persistence").Result())(t)
	return must(strconv.ParseInt(info["Persistence"]["rdb_changes_since_last_save"], 10, 64))(t)
}

// must returns the value of a call that may not fail.
func must[V any](v V, err error) func(tester) V {
	return func(t tester) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
