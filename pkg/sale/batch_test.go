package sale_test

import (
	"errors"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"pgregory.net/rapid"
)

func grants() *rapid.Generator[sale.Grant] {
	return rapid.Custom(func(t *rapid.T) sale.Grant {
		at := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "at")).UTC()
		g := sale.Grant{
			Kind:    rapid.SampledFrom([]sale.GrantKind{sale.GrantGrab, sale.GrantAdjust}).Draw(t, "kind"),
			OrderID: rapid.String().Draw(t, "order"),
			User:    rapid.String().Draw(t, "user"),
			Key:     rapid.String().Draw(t, "key"),
			IP:      rapid.String().Draw(t, "ip"),
			At:      at,
		}
		if rapid.Bool().Draw(t, "expires") {
			g.ExpiresAt = at.Add(time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "after")) * time.Millisecond)
		}
		for range rapid.IntRange(0, 5).Draw(t, "lines") {
			g.Lines = append(g.Lines, sale.Line{
				SKU:        rapid.String().Draw(t, "sku"),
				Quantity:   rapid.Int64Range(0, sale.MaxQuantity).Draw(t, "quantity"),
				PriceCents: rapid.Int64Range(0, sale.MaxPriceCents).Draw(t, "price"),
			})
		}
		return g
	})
}

func TestDecodedBatchIsWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := sale.Batch{
			BatchHead: sale.BatchHead{
				Generation: rapid.Int64Min(0).Draw(t, "generation"),
				Fence:      rapid.Uint64().Draw(t, "fence"),
				Number:     rapid.Uint64().Draw(t, "number"),
				Process:    rapid.StringMatching(`[A-Za-z0-9_-]{1,30}`).Draw(t, "process"),
			},
			Grants: rapid.SliceOfN(grants(), 0, 8).Draw(t, "grants"),
		}
		got, err := sale.DecodeBatch(sale.EncodeBatch(want))
		if err != nil {
			t.Fatal(err)
		}
		if got.BatchHead != want.BatchHead || len(got.Grants) != len(want.Grants) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for i := range want.Grants {
			requireSameGrant(t, got.Grants[i], want.Grants[i])
		}
	})
}

func requireSameGrant(t *rapid.T, got, want sale.Grant) {
	t.Helper()
	same := got.Kind == want.Kind && got.OrderID == want.OrderID && got.User == want.User &&
		got.Key == want.Key && got.IP == want.IP && got.At.Equal(want.At) &&
		got.ExpiresAt.Equal(want.ExpiresAt) && len(got.Lines) == len(want.Lines)
	for i := 0; same && i < len(want.Lines); i++ {
		same = got.Lines[i] == want.Lines[i]
	}
	if !same {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestEveryTruncationIsCorrupt(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000).UTC()
	one := sale.Grant{
		Kind: sale.GrantGrab, OrderID: "s.1", User: "u", At: at, ExpiresAt: at.Add(time.Minute),
		Lines: []sale.Line{{SKU: "A", Quantity: 1, PriceCents: 999}},
	}
	head := sale.BatchHead{Generation: 1, Fence: 2, Number: 3, Process: "p"}
	whole := sale.EncodeBatch(sale.Batch{BatchHead: head, Grants: []sale.Grant{one}})
	empty := len(sale.AppendHead(nil, head))
	for n := range whole {
		_, err := sale.DecodeBatch(whole[:n])
		if n == empty {
			continue // a head alone is a batch without grants
		}
		if !errors.Is(err, sale.ErrCorrupt) {
			t.Errorf("first %d of %d bytes: got %v, want ErrCorrupt", n, len(whole), err)
		}
	}
}

// FuzzDecodeBatch holds that no bytes make the decoder panic, and that what it
// accepts means the same after another round.
func FuzzDecodeBatch(f *testing.F) {
	f.Add(sale.EncodeBatch(sale.Batch{
		BatchHead: sale.BatchHead{Generation: 1, Fence: 7, Number: 1, Process: "p"},
		Grants: []sale.Grant{{
			Kind: sale.GrantGrab, OrderID: "s.1", User: "u", Key: "k", IP: "127.0.0.1",
			At: time.UnixMilli(1), ExpiresAt: time.UnixMilli(60001),
			Lines: []sale.Line{{SKU: "A", Quantity: 2, PriceCents: 5}},
		}},
	}))
	f.Add([]byte("DB1 1 1 1 p\n\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := sale.DecodeBatch(data)
		if err != nil {
			if !errors.Is(err, sale.ErrCorrupt) {
				t.Fatalf("error %v does not wrap ErrCorrupt", err)
			}
			return
		}
		second, err := sale.DecodeBatch(sale.EncodeBatch(first))
		if err != nil {
			t.Fatalf("re-encoded batch: %v", err)
		}
		if len(first.Grants) != len(second.Grants) || first.BatchHead != second.BatchHead {
			t.Fatalf("got %+v, want %+v", second, first)
		}
	})
}
