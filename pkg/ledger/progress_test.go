package ledger

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// seqs are small, so that ranges meet often; some are at the upper end, where
// adding one would overflow.
func ranges() *rapid.Generator[[]Range] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Range {
		first := rapid.Uint64Range(0, 60).Draw(t, "first")
		if rapid.IntRange(0, 9).Draw(t, "high") == 0 {
			first = math.MaxUint64 - first
		}
		last := first + min(rapid.Uint64Range(0, 12).Draw(t, "more"), math.MaxUint64-first)
		return Range{First: first, Last: last, LastAt: timeOf(last)}
	}), 0, 12)
}

// timeOf is when a message was stored, in the streams of these tests.
func timeOf(seq uint64) int64 { return int64(seq>>1) + 7 }

func covers(ranges []Range, seq uint64) bool {
	for _, r := range ranges {
		if r.First <= seq && seq <= r.Last {
			return true
		}
	}
	return false
}

func TestMergedRangesCoverTheSameAndAreFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := ranges().Draw(t, "ranges")
		merged := mergeRanges(given)
		for i := range uint64(80) {
			for _, seq := range []uint64{i, math.MaxUint64 - i} {
				if covers(given, seq) != covers(merged, seq) {
					t.Fatalf("%d is covered by only one of %v and %v", seq, given, merged)
				}
			}
		}
		for i, r := range merged {
			if r.First > r.Last {
				t.Fatalf("%v is no range", r)
			}
			if r.LastAt != timeOf(r.Last) {
				t.Fatalf("%v does not carry the time of its last message", r)
			}
			if i > 0 && (r.First <= merged[i-1].Last || r.First-1 == merged[i-1].Last) {
				t.Fatalf("%v and %v should be one", merged[i-1], r)
			}
		}
	})
}

func TestFloorIsTheEndOfWhatFollowsTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := ranges().Draw(t, "ranges")
		first := rapid.Uint64Range(0, 60).Draw(t, "first")
		floor, at := Floor(given, first)
		if !covers(given, first) {
			if floor != max(first, 1)-1 || at != 0 {
				t.Fatalf("nothing is written from %d on, yet the floor is %d", first, floor)
			}
			return
		}
		if at != timeOf(floor) {
			t.Fatalf("the floor is %d, but its time %d is another message's", floor, at)
		}
		for seq := first; seq <= floor && seq < 100; seq++ {
			if !covers(given, seq) {
				t.Fatalf("the floor is %d, but %d is not written", floor, seq)
			}
		}
		if floor != math.MaxUint64 && covers(given, floor+1) {
			t.Fatalf("the floor is %d, but %d is written, too", floor, floor+1)
		}
	})
}
