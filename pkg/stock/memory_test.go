package stock_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/redis/go-redis/v9"
)

// usedMemory is what the server has allocated, in bytes.
func usedMemory(t tester, client redis.UniversalClient) int64 {
	t.Helper()
	info := must(client.InfoMap(t.Context(), "memory").Result())(t)
	return must(strconv.ParseInt(info["Memory"]["used_memory"], 10, 64))(t)
}

func setMemory(t tester, client redis.UniversalClient, limit int64) {
	t.Helper()
	if err := client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(limit, 10)).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestFullMemoryRefusesAGrabWhole(t *testing.T) {
	for name, remaining := range map[string]int64{"limited": 9, "unlimited": -1} {
		t.Run(name, func(t *testing.T) {
			s := openTill(t, harness.Redis(t).Client(), units(remaining))
			s.grab("W", 1, "ann ann1 A:1")
			keys := s.dump()
			setMemory(t, s.client, 1)

			b := s.batch(1, "bob bob1 A:1", "cid cid1 A:2", "cid cid2 A:1")
			b.Acked = 1 // the batch would trim, too
			_, err := s.store.Grab(t.Context(), b)
			if err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Fatalf("got %v, want OOM", err)
			}
			if err := s.store.Release(t.Context(), s.giveback("cancel:ann1", "ann ann1 A:1")); err == nil {
				t.Error("gave back without memory")
			}
			if after := s.dump(); after != keys {
				t.Fatalf("left\n%s\nof\n%s", after, keys)
			}
			s.grab("A(ann1)", 1, "ann ann2 A:1")

			setMemory(t, s.client, 0)
			s.decide("W L(0) W", b)
			s.requireOutbox("1/7/2/p1 bob1 cid2")
		})
	}
}

// A server that evicts keys is set up wrongly. It must not sell wrongly: every win
// leaves one unit less, and after the first refusal there is none.
func TestEvictionNeverLeadsToAWrongSale(t *testing.T) {
	for round := range 8 {
		server := harness.Redis(t, harness.WithConfig("maxmemory-policy", "allkeys-random"))
		s := openTill(t, server.Client(), units(1000))
		setMemory(t, s.client, usedMemory(t, s.client)+300_000)
		junk := strings.Repeat("x", 10_000)
		sold := int64(0)
		var refused *stock.NotLoaded
		for i := 0; refused == nil; i++ {
			if i == 1000 {
				t.Fatal("nothing of the sale was evicted")
			}
			if err := s.client.Set(t.Context(), fmt.Sprintf("junk%d", i), junk, 0).Err(); err != nil {
				t.Fatal(err)
			}
			d, err := s.store.Grab(t.Context(), s.batch(1, fmt.Sprintf("u%d o%d A:1", i, i)))
			switch {
			case err == nil && d.Answers[0].Code == stock.CodeWon:
				sold++
				if d.Remaining["A"] != 1000-sold {
					t.Fatalf("%d left after %d sales of 1000", d.Remaining["A"], sold)
				}
			case !errors.As(err, &refused):
				t.Fatalf("answers %v, error %v", d.Answers, err)
			}
		}
		t.Logf("round %d: %s after %d sales", round, refused.Reason, sold)
		if _, err := s.store.Grab(t.Context(), s.batch(1, "zoe zoe1 A:1")); !errors.As(err, &refused) {
			t.Fatalf("after the refusal: error %v", err)
		}
	}
}
