package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// openForStock is an approved sale of 10 of A, 5 of B and unlimited C, in generation 3.
func openForStock(t testing.TB, d desk) {
	t.Helper()
	s := draft("s")
	s.Status, s.PerUserLimit = sale.StatusApproved, 0
	_, err := d.CreateSale(t.Context(), s)
	must(t, err)
	must(t, d.SetGeneration(t.Context(), "s", 3))
}

func toStock(sku string, units int64, ref string) ledger.StockChange {
	return ledger.StockChange{SaleID: "s", SKU: sku, Stock: units, Ref: ref, Actor: "ops", Reason: "a truck came"}
}

func setStock(t testing.TB, d desk, c ledger.StockChange, loose ledger.Grants) ledger.StockSet {
	t.Helper()
	set, err := d.SetStock(t.Context(), c, 3, loose)
	must(t, err)
	return set
}

func TestStockBecomesUnlimitedAndGetsABoundAgain(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		openForStock(t, d)
		record(t, d, batchOf(1, grab("s", "a", "1", "A", 4)))

		up := setStock(t, d, toStock("A", sale.Unlimited, "open"), nil)
		equal(t, "before, after", fmt.Sprint(up.Before, up.After), "10 -1")
		record(t, d, batchOf(2, grab("s", "b", "1", "A", 20)))
		sound(t, d, "s")

		down := setStock(t, d, toStock("A", 30, "bound"), nil)
		equal(t, "before, after", fmt.Sprint(down.Before, down.After, down.Asked), "-1 30 30")
		record(t, d, batchOf(3, grab("s", "c", "1", "A", 6)))
		equal(t, "one unit too many is rejected", len(record(t, d, batchOf(4, grab("s", "d", "1", "A", 1))).Rejected), 1)
		sound(t, d, "s")

		flows, err := d.ListFlows(t.Context(), ledger.FlowQuery{SaleID: "s", SKU: "A", Limit: 10})
		must(t, err)
		var chain string
		for _, f := range flows {
			chain += fmt.Sprintf("%s %d%+d=%d %s\n", f.Kind, f.Before, f.Step, f.After, f.Reason)
		}
		want := `grab 10-4=6 
stock 6-10=-4 a truck came (stock from 10 to unlimited)
grab -4-20=-24 
stock -24+30=6 a truck came (stock from unlimited to 30)
grab 6-6=0 
`
		equal(t, "the log", chain, want)
		equal(t, "the history", d.history(t, "s"), "items.A.stock: 10 -> -1 (a truck came, ops)\nitems.A.stock: -1 -> 30 (a truck came, ops)")
	})
}

func TestABoundIsNeverBelowWhatIsSoldOrOnItsWay(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		openForStock(t, d)
		written, cancelled, dead := grab("s", "a", "1", "C", 7), grab("s", "b", "1", "C", 2), grab("s", "c", "1", "C", 3)
		onTheWay, gone := grab("s", "d", "1", "C", 4), grab("s", "e", "1", "C", 5)
		record(t, d, batchOf(1, written, cancelled))
		_, _, err := d.Cancel(t.Context(), cancelled.OrderID, "ops", "")
		must(t, err)
		bury(t, d, dead)
		bury(t, d, gone)
		_, err = d.CancelDead(t.Context(), "s", gone.OrderID, "ops", "")
		must(t, err)
		loose := make(ledger.Grants)
		for _, g := range []sale.Grant{written, cancelled, dead, onTheWay, gone, grab("s", "z", "1", "A", 9)} {
			loose.Add(&g, "C")
		}

		set := setStock(t, d, toStock("C", 6, "bound"), loose)

		equal(t, "the bound", set.After, 7+3+4)
		equal(t, "asked for", set.Asked, 6)
		r := record(t, d, batchOf(5, onTheWay))
		equal(t, "what was on its way fits", r.Orders, 1)
		_, err = d.ReplayDead(t.Context(), "s", dead.OrderID)
		must(t, err)
		equal(t, "sold", item(t, d, "s", "C").Sold, 14)
		equal(t, "nothing else fits", len(record(t, d, batchOf(6, grab("s", "f", "1", "C", 1))).Rejected), 1)
		sound(t, d, "s")
	})
}

func TestAChangeOfTheStockHappensOncePerRef(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		openForStock(t, d)
		record(t, d, batchOf(1, grab("s", "a", "1", "C", 7)))
		for _, c := range []ledger.StockChange{toStock("C", 5, "one"), toStock("A", sale.Unlimited, "one"), toStock("B", sale.Unlimited, "two")} {
			first := setStock(t, d, c, nil)
			rows := d.fingerprint(t)
			again := setStock(t, d, c, ledger.Grants{"s.x": {Units: 99}})
			equal(t, "replayed", fmt.Sprint(first.Replayed, again.Replayed), "false true")
			equal(t, "the same", fmt.Sprint(again.Before, again.After, again.Asked, again.Reason, again.Flow.Seq > 0),
				fmt.Sprint(first.Before, first.After, first.Asked, first.Reason, true))
			known, err := d.StockSet(t.Context(), "s", c.SKU, c.Ref)
			must(t, err)
			equal(t, "known as", fmt.Sprint(known.Before, known.After, known.Asked), fmt.Sprint(first.Before, first.After, first.Asked))
			other := c
			other.Reason = "another"
			if _, err := d.SetStock(t.Context(), other, 3, nil); !errors.Is(err, ledger.ErrRefReused) {
				t.Errorf("another reason: %v", err)
			}
			other = c
			other.Stock++
			if _, err := d.SetStock(t.Context(), other, 3, nil); !errors.Is(err, ledger.ErrRefReused) {
				t.Errorf("another stock: %v", err)
			}
			equal(t, "rows", d.fingerprint(t), rows)
		}
		if _, err := d.StockSet(t.Context(), "s", "C", "none"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an unknown change: %v", err)
		}
	})
}

func TestWhichStocksCanNotBeSet(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		openForStock(t, d)
		createSale(t, d, "draft")
		rows := d.fingerprint(t)
		ofDraft := toStock("A", sale.Unlimited, "x")
		ofDraft.SaleID = "draft"
		for name, c := range map[string]struct {
			change     ledger.StockChange
			generation int64
			want       error
		}{
			"limited to limited":     {toStock("A", 5, "x"), 3, ledger.ErrLimited},
			"overtaken":              {toStock("C", 5, "x"), 2, ledger.ErrOvertaken},
			"unknown item":           {toStock("Z", 5, "x"), 3, ledger.ErrUnknownItem},
			"unknown sale":           {ledger.StockChange{SaleID: "none", SKU: "A", Stock: -1, Ref: "x"}, 3, ledger.ErrNotFound},
			"a draft":                {ofDraft, 3, &ledger.SaleStatusError{SaleID: "draft", Status: sale.StatusDraft}},
			"less than unlimited":    {toStock("A", -2, "x"), 3, &sale.FieldError{Field: "stock"}},
			"more than there can be": {toStock("C", sale.MaxStock+1, "x"), 3, &sale.FieldError{Field: "stock"}},
			"no ref":                 {toStock("A", -1, ""), 3, &sale.FieldError{Field: "ref"}},
		} {
			_, err := d.SetStock(t.Context(), c.change, c.generation, nil)
			var field, wantField *sale.FieldError
			var status, wantStatus *ledger.SaleStatusError
			switch {
			case errors.As(c.want, &wantField):
				if !errors.As(err, &field) || field.Field != wantField.Field {
					t.Errorf("%s: %v", name, err)
				}
			case errors.As(c.want, &wantStatus):
				if !errors.As(err, &status) || *status != *wantStatus {
					t.Errorf("%s: %v", name, err)
				}
			case !errors.Is(err, c.want):
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		same := setStock(t, d, toStock("C", sale.Unlimited, "same"), nil)
		equal(t, "no change", fmt.Sprint(same.Before, same.After, same.Replayed), "-1 -1 false")
		equal(t, "rows", d.fingerprint(t), rows)
	})
}

func TestAReductionThatMeetsUnlimitedStockHasNoEffect(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		openForStock(t, d)
		before := reduction("s", "before", "A", 1)
		record(t, d, batchOf(1, before))
		setStock(t, d, toStock("A", sale.Unlimited, "open"), nil)
		late := reduction("s", "late", "A", 2)
		r := record(t, d, batchOf(2, late))
		equal(t, "adjustments, rejected", fmt.Sprint(r.Adjustments, len(r.Rejected)), "0 0")
		equal(t, "stock", item(t, d, "s", "A").Stock, sale.Unlimited)
		equal(t, "known", record(t, d, batchOf(2, late)).Duplicates, 1)
		setStock(t, d, toStock("A", 20, "bound"), nil)
		_, err := d.AdjustUp(t.Context(), ledger.Adjustment{SaleID: "s", SKU: "A", Delta: 3, Ref: "up"})
		must(t, err)
		for ref, want := range map[string]string{before.OrderID: "10 9 -1", late.OrderID: "0 0 0", "up": "20 23 3"} {
			a, err := d.AdjustmentRecord(t.Context(), "s", "A", ref)
			must(t, err)
			equal(t, "record of "+ref, fmt.Sprint(a.StockBefore, a.StockAfter, a.Flow.Step), want)
		}
		sound(t, d, "s")
	})
}

// A reduction was granted while the stock was limited. Wherever it stands when the stock,
// unlimited in between, gets a bound, the bound is what was asked for, and stays so when the
// reduction comes, once or again.
func TestAReductionOfStockThatWasUnlimitedMeanwhileLeavesTheNewBoundAlone(t *testing.T) {
	late := reduction("s", "late", "A", 5)
	open := func(t *testing.T, d desk) {
		openForStock(t, d)
		record(t, d, batchOf(1, grab("s", "a", "1", "A", 8)))
		setStock(t, d, toStock("A", sale.Unlimited, "open"), nil)
	}
	onItsWay := func() ledger.Grants {
		loose := make(ledger.Grants)
		loose.Add(&late, "A")
		return loose
	}
	known := func(t *testing.T, d desk) {
		equal(t, "the stream has it, and the ledger, too", record(t, d, batchOf(2, late)).Duplicates, 1)
	}
	for name, c := range map[string]struct {
		before func(t *testing.T, d desk) ledger.Grants
		after  func(t *testing.T, d desk)
	}{
		"written while it was unlimited": {
			func(t *testing.T, d desk) ledger.Grants {
				record(t, d, batchOf(2, late))
				return onItsWay()
			}, known,
		},
		"on its way": {
			func(*testing.T, desk) ledger.Grants { return onItsWay() }, known,
		},
		"a dead letter that is replayed": {
			func(t *testing.T, d desk) ledger.Grants {
				bury(t, d, late)
				return onItsWay()
			},
			func(t *testing.T, d desk) {
				r, err := d.ReplayDead(t.Context(), "s", late.OrderID)
				must(t, err)
				equal(t, "adjustments, duplicates", fmt.Sprint(r.Adjustments, r.Duplicates), "0 1")
				known(t, d)
			},
		},
		"a dead letter that is cancelled": {
			func(t *testing.T, d desk) ledger.Grants {
				bury(t, d, late)
				return nil // its message is finished
			},
			func(t *testing.T, d desk) {
				g, err := d.CancelDead(t.Context(), "s", late.OrderID, "ops", "")
				must(t, err)
				if g != nil {
					t.Errorf("%+v comes back of a reduction that took nothing", g)
				}
				known(t, d)
			},
		},
		"buried afterwards": {
			func(*testing.T, desk) ledger.Grants { return onItsWay() },
			func(t *testing.T, d desk) {
				bury(t, d, late)
				letters, err := d.ListDead(t.Context(), "s", "", 10)
				must(t, err)
				equal(t, "dead letters of what is written", len(letters), 0)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d desk) {
				open(t, d)
				loose := c.before(t, d)

				set := setStock(t, d, toStock("A", 10, "bound"), loose)

				equal(t, "the bound", set.After, 10)
				equal(t, "its flow", fmt.Sprint(set.Flow.Kind, " ", set.Flow.Ref), "stock bound")
				c.after(t, d)
				it := item(t, d, "s", "A")
				equal(t, "stock, sold", fmt.Sprint(it.Stock, it.Sold), "10 8")
				a, err := d.AdjustmentRecord(t.Context(), "s", "A", late.OrderID)
				must(t, err)
				equal(t, "the reduction", fmt.Sprint(a.Flow.Step, " ", a.Flow.Actor, " ", a.Flow.Reason),
					"0 ops no effect on unlimited stock: broken units")
				sound(t, d, "s")
			})
		})
	}
}

// No row can hold a reduction of two items: what it took comes back by its dead letter.
func TestABoundLeavesRoomForAReductionThatCanNeverBeWritten(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		openForStock(t, d)
		setStock(t, d, toStock("A", sale.Unlimited, "open"), nil)
		broken := reduction("s", "broken", "A", 5)
		broken.Lines = append(broken.Lines, sale.Line{SKU: "B", Quantity: 1})
		bury(t, d, broken)
		equal(t, "the bound", setStock(t, d, toStock("A", 3, "bound"), nil).After, 5)
		g, err := d.CancelDead(t.Context(), "s", broken.OrderID, "ops", "")
		must(t, err)
		equal(t, "comes back", g.Lines[0].Quantity, 5)
		sound(t, d, "s")
	})
}
