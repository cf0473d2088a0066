package stock_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// cpuSeconds is what the server has used of its processor, user and system.
func cpuSeconds(b *testing.B, client redis.UniversalClient) float64 {
	b.Helper()
	cpu := must(client.InfoMap(b.Context(), "cpu").Result())(b)["CPU"]
	return must(strconv.ParseFloat(cpu["used_cpu_user"], 64))(b) + must(strconv.ParseFloat(cpu["used_cpu_sys"], 64))(b)
}

// measure runs b.N calls and reports time and Redis CPU per unit; each call makes
// this many units.
func measure(b *testing.B, client redis.UniversalClient, perCall int, unit string, run func()) {
	b.Helper()
	before := cpuSeconds(b, client)
	run()
	b.StopTimer()
	n := float64(b.N) * float64(perCall)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/"+unit)
	b.ReportMetric((cpuSeconds(b, client)-before)*1e9/n, "redis-cpu-ns/"+unit)
}

// asks makes the asks of one batch, each of another user.
func asks(size, number int) []stock.Ask {
	out := make([]stock.Ask, size)
	at := time.UnixMilli(1_700_000_000_000).UTC()
	for i := range out {
		user := fmt.Sprintf("user-%09d", number*size+i)
		g := &sale.Grant{
			Kind: sale.GrantGrab, OrderID: sale.OrderID("sale", user, "k"), User: user, Key: "k", IP: "203.0.113.7",
			At: at, ExpiresAt: at.Add(time.Minute), Lines: []sale.Line{{SKU: "A", Quantity: 1, PriceCents: 999}},
		}
		out[i] = stock.Ask{Grant: g, Record: sale.AppendGrant(nil, g)}
	}
	return out
}

func BenchmarkGrabBatch(b *testing.B) {
	for _, size := range []int{1, 16, 128, 512} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			client := harness.Redis(b).Client()
			s := openTill(b, client, units(sale.MaxStock))
			b.ResetTimer()
			measure(b, client, size, "grant", func() {
				for i := range b.N {
					b.StopTimer()
					batch := stock.Batch{
						SaleID: s.id, PerUser: 1, Process: process, Number: uint64(i + 1), Acked: uint64(i), Asks: asks(size, i),
					}
					b.StartTimer()
					d, err := s.store.Grab(b.Context(), batch)
					if err != nil || d.Answers[size-1].Code != stock.CodeWon {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkSoldOutBatch is what a batch costs after the last unit is gone.
func BenchmarkSoldOutBatch(b *testing.B) {
	const size = 512
	client := harness.Redis(b).Client()
	s := openTill(b, client, units(0))
	batch := stock.Batch{SaleID: s.id, PerUser: 1, Process: process, Number: 1, Asks: asks(size, 0)}
	b.ResetTimer()
	measure(b, client, size, "refusal", func() {
		for range b.N {
			if _, err := s.store.Grab(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// plain is the shortest script that sells: nothing is recorded, nothing is fenced,
// and what it sold is gone with the server.
const plain = `
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 'A' end
if tonumber(redis.call('GET', KEYS[2])) < 1 then return 'S' end
redis.call('DECR', KEYS[2])
redis.call('SADD', KEYS[1], ARGV[1])
return 'W'`

// BenchmarkPlainScript makes one call per request, for comparison in the same run.
func BenchmarkPlainScript(b *testing.B) {
	for _, connections := range []int{1, 64} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			server := harness.Redis(b)
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: connections})
			b.Cleanup(func() { _ = client.Close() })
			sha := must(client.ScriptLoad(b.Context(), plain).Result())(b)
			if err := client.Set(b.Context(), "{s}stock", sale.MaxStock, 0).Err(); err != nil {
				b.Fatal(err)
			}
			var last atomic.Int64
			grab := func() error {
				for i := last.Add(1); i <= int64(b.N); i = last.Add(1) {
					reply, err := client.EvalSha(b.Context(), sha, []string{"{s}buyers", "{s}stock"}, fmt.Sprintf("user-%09d", i)).Text()
					if err != nil || reply != "W" {
						return fmt.Errorf("answer %q, error %w", reply, err)
					}
				}
				return nil
			}
			b.ResetTimer()
			measure(b, client, 1, "grant", func() {
				var group errgroup.Group
				for range connections {
					group.Go(grab)
				}
				if err := group.Wait(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkFence is one inspect with and without the look at the replication id:
// the difference is what that costs every batch.
func BenchmarkFence(b *testing.B) {
	for _, with := range []bool{true, false} {
		b.Run(fmt.Sprintf("replid=%v", with), func(b *testing.B) {
			client := harness.Redis(b).Client()
			s := openTill(b, client, units(5))
			if !with {
				s.era = lua.NewEra("")
				for _, script := range lua.In(s.era).All() {
					if err := client.ScriptLoad(b.Context(), script.Source).Err(); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.commit(s.store.BeginRestore(s.id, 1), 2, 8, units(5)); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			measure(b, client, 1, "call", func() {
				for range b.N {
					if _, err := s.store.State(b.Context(), s.id, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	const chunk = 1000
	for _, size := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("grants=%d", size), func(b *testing.B) {
			client := harness.Redis(b).Client()
			s := openTill(b, client, units(sale.MaxStock))
			empty := usedMemory(b, client)
			all := asks(size, 0)
			b.ResetTimer()
			for range b.N {
				r := s.store.BeginRestore(s.id, chunk)
				for i := range all {
					g := all[i].Grant
					if err := r.Grant(b.Context(), g.OrderID, all[i].Record); err != nil {
						b.Fatal(err)
					}
					if err := r.Buyer(b.Context(), g.User, 1, g.OrderID); err != nil {
						b.Fatal(err)
					}
				}
				s.gen, s.fence = s.gen+1, s.fence+1
				if err := s.commit(r, s.gen, s.fence, units(sale.MaxStock)); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/restore")
			harness.Eventually(b, time.Minute, "the replaced keys are freed", func() (bool, string) {
				info := must(client.InfoMap(b.Context(), "memory").Result())(b)
				pending := info["Memory"]["lazyfree_pending_objects"]
				return pending == "0", pending + " to go"
			})
			b.ReportMetric(float64(usedMemory(b, client)-empty)/float64(size), "redis-bytes/grant")
		})
	}
}
