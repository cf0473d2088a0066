package stream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestDeadLettersAreListedPerSaleInPages(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	var want []string
	for i := range 25 {
		for _, id := range []string{"s1", "s2"} {
			letter := stream.DeadLetter{SaleID: id, ID: fmt.Sprintf("%s-%d", id, i), SourceSeq: uint64(i + 1), Reason: "why", Data: []byte{byte(i)}}
			get[uint64](t)(s.PublishDead(t.Context(), letter))
		}
		want = append(want, fmt.Sprintf("s1-%d", i))
	}
	server.Kill()
	server.Start()
	harness.Eventually(t, wait, "the client is back", func() (bool, string) { return s.Reachable(), "not reachable" })
	var got []string
	var after uint64
	for {
		page := get[[]stream.DeadLetter](t)(s.DeadLetters(t.Context(), "s1", after, 10))
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			got = append(got, l.ID)
			one := get[stream.DeadLetter](t)(s.DeadLetter(t.Context(), l.Seq))
			if one.ID != l.ID || one.SourceSeq != uint64(len(got)) || one.Reason != "why" || one.At.IsZero() || one.Data[0] != byte(len(got)-1) {
				t.Fatalf("letter %d is %+v, listed as %+v", l.Seq, one, l)
			}
		}
		after = page[len(page)-1].Seq
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("listed %v, want %v", got, want)
	}
}

func TestGivingUpTwiceLeavesOneLetter(t *testing.T) {
	s := open(t, harness.NATS(t))
	letter := stream.DeadLetter{SaleID: "s1", ID: "one", Reason: strings.Repeat("é", 2000)}
	if a, b := get[uint64](t)(s.PublishDead(t.Context(), letter)), get[uint64](t)(s.PublishDead(t.Context(), letter)); a != b {
		t.Fatalf("stored at %d and at %d", a, b)
	}
	if l := get[stream.DeadLetter](t)(s.DeadLetter(t.Context(), 1)); len(l.Reason) != 1000 {
		t.Fatalf("the reason has %d bytes", len(l.Reason))
	}
}

func TestDeadLettersThatCannotBeAreErrors(t *testing.T) {
	s := open(t, harness.NATS(t))
	_, err := s.DeadLetter(t.Context(), 7)
	wantError(t, err, stream.ErrNoDeadLetter)
	for _, id := range []string{"", "*", "a.b", "a b"} {
		if _, err := s.PublishDead(t.Context(), stream.DeadLetter{SaleID: id}); err == nil {
			t.Errorf("a letter of sale %q was stored", id)
		}
	}
	for _, limit := range []int{0, stream.DeadPageMax + 1} {
		if _, err := s.DeadLetters(t.Context(), "s1", 0, limit); err == nil {
			t.Errorf("a page of %d was listed", limit)
		}
	}
}
