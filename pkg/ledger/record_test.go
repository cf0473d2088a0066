package ledger_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestAGrantBecomesOneOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "key", "A", 2)
		g.Lines = append(g.Lines, sale.Line{SKU: "C", Quantity: 1, PriceCents: 7})

		r := record(t, d, batchOf(7, g))

		equal(t, "orders", r.Orders, 1)
		o, err := d.GetOrder(t.Context(), g.OrderID)
		must(t, err)
		equal(t, "status", o.Status, sale.OrderPendingPayment)
		equal(t, "user", o.User, "ann")
		equal(t, "key", o.Key, "key")
		equal(t, "ip", o.IP, g.IP)
		equal(t, "generation", o.Generation, 3)
		equal(t, "created", o.CreatedAt, g.At)
		equal(t, "expires", o.ExpiresAt, g.ExpiresAt)
		if want := []sale.OrderLine{{Line: g.Lines[0]}, {Line: g.Lines[1]}}; !slices.Equal(o.Lines, want) {
			t.Fatalf("lines %+v, want %+v", o.Lines, want)
		}
		equal(t, "sold of A", item(t, d, "s", "A").Sold, 2)
		sound(t, d, "s")
	})
}

func TestFlowsChainPerSKU(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		record(t, d, batchOf(1, grab("s", "a", "1", "A", 2), grab("s", "b", "1", "C", 3), grab("s", "c", "1", "A", 1)))
		record(t, d, batchOf(4, reduction("s", "r", "A", 4), grab("s", "d", "1", "A", 3)))

		flows, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: "s", SKU: "A", Limit: 10})
		must(t, err)

		var chain [][3]int64
		for _, f := range flows {
			chain = append(chain, [3]int64{f.Before, f.Step, f.After})
		}
		if want := [][3]int64{{10, -2, 8}, {8, -1, 7}, {7, -4, 3}, {3, -3, 0}}; !slices.Equal(chain, want) {
			t.Fatalf("flows of A are %v, want %v", chain, want)
		}
		equal(t, "actor", flows[2].Actor, "ops")
		equal(t, "reason", flows[2].Reason, "broken units")
		unlimited, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: "s", SKU: "C", Limit: 10})
		must(t, err)
		equal(t, "unlimited stock counts from zero downwards", unlimited[0].After, -3)
		sound(t, d, "s")
	})
}

func TestAReplayChangesNoRow(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		createSale(t, d, "s2")
		b := batchOf(1, grab("s", "a", "1", "A", 2), grab("s2", "b", "1", "C", 3), reduction("s", "r", "A", 4))
		record(t, d, b)
		before := d.fingerprint(t)

		for range 3 {
			r := record(t, d, b)
			equal(t, "duplicates", r.Duplicates, 3)
			equal(t, "new", r.Orders+r.Adjustments, 0)
		}

		equal(t, "rows", d.fingerprint(t), before)
	})
}

// fingerprint is the text of all rows.
func (d desk) fingerprint(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"sales", "items", "orders", "flows", "givebacks", "progress", "dead_letters"} {
		rows, err := d.raw.QueryContext(t.Context(), "SELECT * FROM "+table+" ORDER BY 1, 2")
		must(t, err)
		columns, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			must(t, rows.Scan(into...))
			for _, v := range values {
				switch v := v.(type) {
				case []byte:
					all.Write(v)
				case time.Time:
					all.WriteString(v.String())
				case string:
					all.WriteString(v)
				case int64:
					all.WriteString(time.Duration(v).String())
				case nil:
				default:
					t.Fatalf("a column of type %T", v)
				}
				all.WriteByte('|')
			}
			all.WriteByte('\n')
		}
		must(t, rows.Err())
		must(t, rows.Close())
	}
	return all.String()
}

func TestOneBatchWithTheSameGrantTwiceMakesOneOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "ann", "key", "A", 1)
		r := record(t, d, batchOf(1, g, g))
		equal(t, "orders", r.Orders, 1)
		equal(t, "duplicates", r.Duplicates, 1)
		sound(t, d, "s")
	})
}

func TestMoreThanThereIsIsRejectedAndTold(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		fits, tooMuch, last := grab("s", "a", "1", "B", 4), grab("s", "b", "1", "B", 2), grab("s", "c", "1", "B", 1)

		r := record(t, d, batchOf(1, fits, tooMuch, last, reduction("s", "r", "B", 1)))

		equal(t, "orders", r.Orders, 2)
		equal(t, "adjustments", r.Adjustments, 0)
		if want := []string{tooMuch.OrderID, reduction("s", "r", "B", 1).OrderID}; !slices.Equal(r.Rejected, want) {
			t.Fatalf("rejected %v, want %v", r.Rejected, want)
		}
		o, err := d.GetOrder(t.Context(), tooMuch.OrderID)
		must(t, err)
		equal(t, "status", o.Status, sale.OrderRejected)
		equal(t, "sold", item(t, d, "s", "B").Sold, 5)
		done, err := d.AdjustmentRecord(t.Context(), "s", "B", reduction("s", "r", "B", 1).OrderID)
		must(t, err)
		equal(t, "step of the refused reduction", done.Flow.Step, 0)
		sound(t, d, "s")
		again := record(t, d, batchOf(1, fits, tooMuch, last, reduction("s", "r", "B", 1)))
		equal(t, "duplicates", again.Duplicates, 4)
		equal(t, "rejected again", len(again.Rejected), 0)
	})
}

func TestAnOrderOfTwoItemsIsRejectedWhole(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		g := grab("s", "a", "1", "A", 1)
		g.Lines = append(g.Lines, sale.Line{SKU: "B", Quantity: 6})
		r := record(t, d, batchOf(1, g))
		equal(t, "rejected", len(r.Rejected), 1)
		equal(t, "sold of A", item(t, d, "s", "A").Sold, 0)
		sound(t, d, "s")
	})
}

func TestProgressGrowsTogetherInAnyOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		mark := func(stream int64, ranges ...ledger.Range) {
			t.Helper()
			record(t, d, ledger.Batch{StreamID: stream, Done: ranges})
		}
		mark(stream, ledger.Range{First: 5, Last: 9})
		mark(stream, ledger.Range{First: 1, Last: 2}, ledger.Range{First: 12, Last: 12})
		mark(stream+1, ledger.Range{First: 1, Last: 100})
		equal(t, "rows", d.count(t, "SELECT COUNT(*) FROM progress WHERE stream_id = ?", int64(stream)), 3)
		mark(stream, ledger.Range{First: 2, Last: 6})
		mark(stream, ledger.Range{First: 11, Last: 11})
		mark(stream, ledger.Range{First: 10, Last: 10})
		got, err := d.Progress(t.Context(), stream)
		must(t, err)
		if want := []ledger.Range{{First: 1, Last: 12}}; !slices.Equal(got, want) {
			t.Fatalf("progress %v, want %v", got, want)
		}
		equal(t, "rows", d.count(t, "SELECT COUNT(*) FROM progress WHERE stream_id = ?", int64(stream)), 1)
	})
}

func TestProgressKeepsTheTimeOfItsLastMessage(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		mark := func(first, last uint64, at int64) {
			t.Helper()
			record(t, d, ledger.Batch{StreamID: stream, Done: []ledger.Range{{First: first, Last: last, LastAt: at}}})
		}
		floor := func(firstSeq uint64, want uint64, wantAt int64) {
			t.Helper()
			must(t, d.ReadSnapshot(t.Context(), "s", stream, firstSeq, func(s *ledger.Snapshot) error {
				equal(t, "floor", s.Floor(), want)
				equal(t, "time of the floor", s.FloorAt(), wantAt)
				return nil
			}))
		}
		floor(1, 0, 0)
		mark(1, 3, 30)
		mark(6, 6, 60)
		floor(1, 3, 30)
		floor(5, 4, 0)
		mark(4, 5, 50)
		floor(1, 6, 60)
		mark(2, 2, 20) // comes again
		floor(1, 6, 60)
	})
}

func TestProgressEndsWhereAnOlderCopyOfTheStreamGoesOnOtherwise(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		mark := func(first, last uint64, at int64) {
			t.Helper()
			record(t, d, ledger.Batch{StreamID: stream, Done: []ledger.Range{{First: first, Last: last, LastAt: at}}})
		}
		mark(1, 9, 90)
		mark(12, 12, 120)
		mark(7, 7, 700) // after a restore to 6
		record(t, d, ledger.Batch{StreamID: stream + 1, Done: []ledger.Range{{First: 1, Last: 1}}})
		got, err := d.Progress(t.Context(), stream)
		must(t, err)
		if want := []ledger.Range{{First: 7, Last: 7, LastAt: 700}, {First: 12, Last: 12, LastAt: 120}}; !slices.Equal(got, want) {
			t.Fatalf("progress %v, want %v", got, want)
		}
		must(t, d.ForgetProgress(t.Context(), stream))
		equal(t, "rows of the stream", d.count(t, "SELECT COUNT(*) FROM progress WHERE stream_id = ?", int64(stream)), 0)
		equal(t, "rows", d.count(t, "SELECT COUNT(*) FROM progress"), 1)
	})
}

func TestManyGrantsOfManySalesInOneTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		const each = 200 // together more than one statement inserts
		var grants []sale.Grant
		for _, id := range []string{"z", "a-b", "a"} {
			createSale(t, d, id)
			for i := range each {
				grants = append(grants, grab(id, "user"+time.Duration(i).String(), "k", "C", 1))
			}
		}
		r := record(t, d, batchOf(1, grants...))
		equal(t, "orders", r.Orders, len(grants))
		for _, id := range []string{"z", "a-b", "a"} {
			equal(t, "sold in "+id, item(t, d, id, "C").Sold, each)
			sound(t, d, id)
		}
	})
}

func TestProgressLosesNothingToOthersWhoRecordAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		const seqs, writers = 240, 6
		random := rand.New(rand.NewPCG(harness.Seed(t), 0)).Perm(seqs)
		var done sync.WaitGroup
		for part := range slices.Chunk(random, seqs/writers) {
			done.Go(func() {
				for _, i := range part {
					seq := uint64(i + 1)
					if _, err := d.Record(t.Context(), ledger.Batch{StreamID: stream, Done: []ledger.Range{{First: seq, Last: seq}}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		done.Wait()
		got, err := d.Progress(t.Context(), stream)
		must(t, err)
		if want := []ledger.Range{{First: 1, Last: seqs}}; !slices.Equal(got, want) {
			t.Fatalf("progress %v, want %v", got, want)
		}
	})
}
