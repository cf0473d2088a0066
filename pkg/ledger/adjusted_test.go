package ledger_test

import (
	"errors"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestARecordOfAnAdjustmentStaysTheSameWhateverFollows(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s1")
		record(t, d, batchOf(1, grab("s1", "ann", "k", "A", 2)))
		_, err := d.AdjustUp(t.Context(), ledger.Adjustment{SaleID: "s1", SKU: "A", Delta: 5, Ref: "up", Actor: "ops", Reason: "found"})
		must(t, err)
		down := reduction("s1", "down", "A", 4)
		record(t, d, batchOf(2, down))
		record(t, d, batchOf(3, grab("s1", "bob", "k", "A", 3)))

		up, err := d.AdjustmentRecord(t.Context(), "s1", "A", "up")
		must(t, err)
		equal(t, "step up", up.Flow.Step, 5)
		equal(t, "reason", up.Flow.Reason, "found")
		equal(t, "stock before up", up.StockBefore, 10)
		equal(t, "stock after up", up.StockAfter, 15)
		if up.Giveback == nil || up.Giveback.ID != sale.GivebackID(sale.FlowAdjust, "up") {
			t.Errorf("giveback %+v", up.Giveback)
		}

		lower, err := d.AdjustmentRecord(t.Context(), "s1", "A", down.OrderID)
		must(t, err)
		equal(t, "step down", lower.Flow.Step, -4)
		equal(t, "stock before down", lower.StockBefore, 15)
		equal(t, "stock after down", lower.StockAfter, 11)
		if lower.Giveback != nil {
			t.Errorf("a reduction gives back %+v", lower.Giveback)
		}

		for _, unknown := range [][2]string{{"A", "other"}, {"B", "up"}} {
			if _, err := d.AdjustmentRecord(t.Context(), "s1", unknown[0], unknown[1]); !errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("adjustment %v: %v", unknown, err)
			}
		}
	})
}

func TestItemCountsAreOfTheSalesAskedFor(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s1")
		createSale(t, d, "s2")
		createSale(t, d, "s3")
		record(t, d, batchOf(1, grab("s2", "ann", "k", "A", 2)))
		counts, err := d.ItemCounts(t.Context(), []string{"s1", "s2", "none"})
		must(t, err)
		equal(t, "sales", len(counts), 2)
		equal(t, "items of s1", len(counts["s1"]), 3)
		equal(t, "first item", counts["s2"][0].SKU, "B")
		equal(t, "sold", counts["s2"][1], ledger.ItemTotals{SKU: "A", Stock: 10, Granted: 2, Sold: 2, PriceCents: 100})
	})
}
