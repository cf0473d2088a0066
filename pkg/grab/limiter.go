package grab

import (
	"hash/maphash"
	"math"
	"net/netip"
	"sync"
	"time"
)

// Bounds of what is remembered of callers. A bucket takes about 40 bytes.
const (
	bucketShards = 64
	// generationMax is how many buckets one generation of a shard holds. Two of them
	// are kept, so that at most 2 * bucketShards * generationMax callers are remembered.
	generationMax = 4096
)

// limit is a rate that holds for each caller: tokens per second, and the most a
// caller can have saved.
type limit struct {
	perSecond, burst float64
}

// newLimit returns nil, which is no limit, for a rate of 0.
func newLimit(perSecond float64, burst int64) *limit {
	if perSecond == 0 {
		return nil
	}
	return &limit{perSecond: perSecond, burst: float64(max(burst, 1))}
}

// allowance is what a bucket says of one grab.
type allowance struct {
	ok   bool
	left int64         // whole tokens left
	next time.Duration // until there is one more, 0 when the bucket is full
}

// buckets holds a token bucket per caller. The shards keep many connections from
// waiting for each other; callers stand in them by a hash, so that a stranger
// costs no memory beyond its bucket.
//
// Whoever has not come for a whole generation of others is forgotten, which gives
// it a full bucket: memory is bounded before fairness.
type buckets struct {
	seed   maphash.Seed
	start  time.Time
	shards [bucketShards]bucketShard
}

type bucketShard struct {
	mu         sync.Mutex
	young, old map[uint64]bucket
}

type bucket struct {
	tokens float64
	at     time.Duration // since the start of buckets
}

func newBuckets() *buckets { return &buckets{seed: maphash.MakeSeed(), start: time.Now()} }

// user is whose bucket a user's is.
func (b *buckets) user(id string) uint64 { return maphash.String(b.seed, id) }

// address is whose bucket a client address's is: for IPv6 that of its /64, which one
// client is likely to own.
func (b *buckets) address(ip string) uint64 {
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.Is4() {
		return maphash.String(b.seed, ip)
	}
	bytes := addr.As16()
	return maphash.Bytes(b.seed, bytes[:8])
}

// take takes a token of a caller's, if there is one.
func (b *buckets) take(l *limit, caller uint64, now time.Time) allowance {
	at := now.Sub(b.start)
	shard := &b.shards[caller%bucketShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	tokens := l.burst
	if known, ok := shard.find(caller); ok {
		tokens = known.tokens
		if at > known.at {
			tokens += l.perSecond * (at - known.at).Seconds()
		}
		tokens = min(tokens, l.burst)
		at = max(at, known.at)
	}
	ok := tokens >= 1
	if ok {
		tokens--
	}
	shard.keep(caller, bucket{tokens: tokens, at: at})
	whole := math.Floor(tokens)
	return allowance{ok: ok, left: int64(whole), next: l.until(whole+1, tokens)}
}

// giveBack gives the token of a grab back that was refused for another reason.
func (b *buckets) giveBack(l *limit, caller uint64) {
	shard := &b.shards[caller%bucketShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if known, ok := shard.find(caller); ok {
		known.tokens = min(known.tokens+1, l.burst)
		shard.keep(caller, known)
	}
}

// forget forgets everybody.
func (b *buckets) forget() {
	for i := range b.shards {
		shard := &b.shards[i]
		shard.mu.Lock()
		shard.young, shard.old = nil, nil
		shard.mu.Unlock()
	}
}

// size is how many callers are remembered; who came in both generations counts twice.
func (b *buckets) size() int {
	n := 0
	for i := range b.shards {
		shard := &b.shards[i]
		shard.mu.Lock()
		n += len(shard.young) + len(shard.old)
		shard.mu.Unlock()
	}
	return n
}

// until is how long a bucket takes to fill from tokens to wanted.
func (l *limit) until(wanted, tokens float64) time.Duration {
	if wanted > l.burst {
		return 0
	}
	seconds := (wanted - tokens) / l.perSecond
	// A rate may be so small that no Duration holds the wait.
	return time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second))
}

// maxWait is the longest wait that anybody is told.
const maxWait = 24 * time.Hour

func (s *bucketShard) find(caller uint64) (bucket, bool) {
	if b, ok := s.young[caller]; ok {
		return b, true
	}
	b, ok := s.old[caller]
	return b, ok
}

// keep remembers a bucket among the young; when they are many, they become the old.
func (s *bucketShard) keep(caller uint64, b bucket) {
	if s.young == nil {
		s.young = make(map[uint64]bucket)
	}
	if _, known := s.young[caller]; !known && len(s.young) >= generationMax {
		s.old, s.young = s.young, make(map[uint64]bucket)
	}
	s.young[caller] = b
}
