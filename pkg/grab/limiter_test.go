package grab

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// takes counts how many of n grabs at the same moment get a token.
func takes(b *buckets, l *limit, caller uint64, n int, at time.Time) (taken int) {
	for range n {
		if b.take(l, caller, at).ok {
			taken++
		}
	}
	return taken
}

func TestACallerMayBurstAndThenGoesAtItsRate(t *testing.T) {
	b, l := newBuckets(), newLimit(2, 5)
	ann, bob := b.user("ann"), b.user("bob")
	now := b.start
	if got := takes(b, l, ann, 20, now); got != 5 {
		t.Errorf("at once: %d, want the burst of 5", got)
	}
	if got := takes(b, l, bob, 20, now); got != 5 {
		t.Errorf("another caller at once: %d, want 5", got)
	}
	for second := 1; second <= 10; second++ {
		if got := takes(b, l, ann, 20, now.Add(time.Duration(second)*time.Second)); got != 2 {
			t.Errorf("in second %d: %d, want 2", second, got)
		}
	}
	if got := takes(b, l, ann, 20, now.Add(time.Hour)); got != 5 {
		t.Errorf("after a rest: %d, want 5", got)
	}
	if got := takes(b, l, ann, 20, now); got != 0 {
		t.Errorf("a clock that went back gave %d", got)
	}
}

func TestAnAllowanceSaysWhatIsLeftAndWhenThereIsMore(t *testing.T) {
	b, l := newBuckets(), newLimit(0.5, 2)
	caller, now := b.user("ann"), b.start
	for i, want := range []allowance{
		{true, 1, 2 * time.Second}, {true, 0, 2 * time.Second}, {false, 0, 2 * time.Second},
	} {
		if got := b.take(l, caller, now); got != want {
			t.Errorf("grab %d: %+v, want %+v", i+1, got, want)
		}
	}
	if got, want := b.take(l, caller, now.Add(time.Second)), (allowance{false, 0, time.Second}); got != want {
		t.Errorf("half way to the next: %+v, want %+v", got, want)
	}
	if got, want := b.take(l, caller, now.Add(time.Hour)), (allowance{true, 1, 2 * time.Second}); got != want {
		t.Errorf("after a rest: %+v, want %+v", got, want)
	}
	b.giveBack(l, caller)
	if got, want := b.take(l, caller, now.Add(time.Hour)), (allowance{true, 1, 2 * time.Second}); got != want {
		t.Errorf("after a token came back: %+v, want %+v", got, want)
	}
	slow := newLimit(1e-12, 1)
	b.take(slow, b.user("cat"), now)
	if got := b.take(slow, b.user("cat"), now); got.ok || got.next != maxWait {
		t.Errorf("at a rate near 0: %+v, want to wait %s", got, maxWait)
	}
}

func TestAChangedRateHoldsAtOnceForThoseWhoAreKnown(t *testing.T) {
	b := newBuckets()
	caller, now := b.user("ann"), b.start
	takes(b, newLimit(0.001, 10), caller, 4, now)
	if got := takes(b, newLimit(0.001, 3), caller, 10, now); got != 3 {
		t.Errorf("with a smaller burst: %d, want 3", got)
	}
	if got := takes(b, newLimit(100, 50), caller, 50, now.Add(100*time.Millisecond)); got != 10 {
		t.Errorf("a tenth of a second at 100 a second: %d, want 10", got)
	}
}

func TestOneClientsIPv6AddressesShareABucket(t *testing.T) {
	b := newBuckets()
	for _, pair := range []struct {
		one, other string
		same       bool
	}{
		{"2001:db8:1:2::3", "2001:db8:1:2:ffff::1", true},
		{"2001:db8:1:2::3", "2001:db8:1:3::3", false},
		{"203.0.113.7", "203.0.113.7", true},
		{"203.0.113.7", "203.0.113.8", false},
		{"no address", "no address", true},
	} {
		if got := b.address(pair.one) == b.address(pair.other); got != pair.same {
			t.Errorf("%s and %s share a bucket: %t", pair.one, pair.other, got)
		}
	}
}

func TestManyCallersTakeBoundedMemory(t *testing.T) {
	b, l := newBuckets(), newLimit(1, 2)
	const bound = 2 * bucketShards * generationMax
	regular := b.user("regular")
	for i := range 3 * bound {
		b.take(l, b.user(strconv.Itoa(i)), b.start)
		if i%1000 == 0 {
			b.take(l, regular, b.start)
		}
	}
	if got := b.size(); got > bound || got < bound/4 {
		t.Errorf("%d callers are remembered, the bound is %d", got, bound)
	}
	if b.take(l, regular, b.start).ok {
		t.Error("a caller who came all the time was forgotten")
	}
	b.forget()
	if got := b.size(); got != 0 {
		t.Errorf("%d callers are remembered after forgetting", got)
	}
}

func TestGrabsAtTheSameMomentGetExactlyTheTokens(t *testing.T) {
	b, l := newBuckets(), newLimit(0.001, 100)
	users := make([]uint64, 8)
	for i := range users {
		users[i] = b.user(strconv.Itoa(i))
	}
	var taken [8]atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				for i, user := range users {
					if b.take(l, user, time.Now()).ok {
						taken[i].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range taken {
		if got := taken[i].Load(); got != 100 {
			t.Errorf("user %d: %d tokens, want 100", i, got)
		}
	}
}

func TestTheHeadersSayWhatThePoliciesAllow(t *testing.T) {
	for _, test := range []struct {
		user, ip *limit
		want     string
	}{
		{nil, nil, "[]"},
		{newLimit(5, 10), nil, `["user";q=10;w=2]`},
		{nil, newLimit(0.5, 1), `["ip";q=1;w=2]`},
		{newLimit(3, 10), newLimit(1000, 100), `["user";q=10;w=4, "ip";q=100;w=1]`},
		{newLimit(math.SmallestNonzeroFloat64, 1), nil, `["user";q=1;w=86400]`},
	} {
		if got := fmt.Sprint(newFlow(test.user, test.ip).policies); got != test.want {
			t.Errorf("RateLimit-Policy %s, want %s", got, test.want)
		}
	}
	for _, test := range []struct {
		allowance allowance
		want      string
	}{
		{allowance{true, 9, 0}, `"user";r=9`},
		{allowance{true, 9, time.Millisecond}, `"user";r=9;t=1`},
		{allowance{false, 0, 1001 * time.Millisecond}, `"user";r=0;t=2`},
	} {
		if got := string(appendService(nil, PolicyUser, test.allowance)); got != test.want {
			t.Errorf("RateLimit %s, want %s", got, test.want)
		}
	}
}

func TestAdmissionCostsNoAllocation(t *testing.T) {
	s := &Service{users: newBuckets(), addresses: newBuckets()}
	s.flow.Store(newFlow(nil, nil))
	header := http.Header{}
	if n := testing.AllocsPerRun(100, func() {
		a := s.admit("ann", "2001:db8::1")
		a.describe(header)
	}); n > 0 || len(header) > 0 {
		t.Errorf("without limits: %v allocations, header %v", n, header)
	}
	s.flow.Store(newFlow(newLimit(1, 1), newLimit(1, 1)))
	if n := testing.AllocsPerRun(100, func() { s.admit("ann", "2001:db8::1") }); n > 0 {
		t.Errorf("with limits: %v allocations", n)
	}
}

// BenchmarkAdmit is what the policies cost a grab, with as many callers as the
// connections of a busy process.
func BenchmarkAdmit(b *testing.B) {
	users := make([]string, 4096)
	for i := range users {
		users[i] = "user-" + strconv.Itoa(i)
	}
	for name, f := range map[string]*flow{"off": newFlow(nil, nil), "on": newFlow(newLimit(1e12, 1e12), newLimit(1e12, 1e12))} {
		b.Run(name, func(b *testing.B) {
			s := &Service{users: newBuckets(), addresses: newBuckets()}
			s.flow.Store(f)
			b.ReportAllocs()
			b.SetParallelism(512)
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := next.Add(977); pb.Next(); i++ {
					if a := s.admit(users[i%4096], "203.0.113.7"); a.refuses != "" {
						b.Error("refused")
					}
				}
			})
		})
	}
}
