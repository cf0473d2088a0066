package ledger_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestASaleComesBackAsItWasCreated(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		want := draft("s")
		berlin := time.FixedZone("", 3600)
		want.StartsAt = want.StartsAt.In(berlin).Add(123 * time.Millisecond)
		created, err := d.CreateSale(t.Context(), want)
		must(t, err)
		got, err := d.GetSale(t.Context(), "s")
		must(t, err)
		want.Revision, want.StartsAt = 1, want.StartsAt.UTC()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		equal(t, "revision", created.Revision, 1)
	})
}

func TestASaleIsCreatedOnceAndWhole(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		other := draft("s")
		other.Items = append(other.Items, sale.Item{SKU: "D"})
		if _, err := d.CreateSale(t.Context(), other); !errors.Is(err, ledger.ErrSaleExists) {
			t.Fatalf("got %v", err)
		}
		broken := draft("s2")
		broken.Items[2].Stock = -7
		if _, err := d.CreateSale(t.Context(), broken); err == nil {
			t.Fatal("a stock of -7 was stored")
		}
		equal(t, "sales", d.count(t, "SELECT COUNT(*) FROM sales"), 1)
		equal(t, "items", d.count(t, "SELECT COUNT(*) FROM items"), 3)
	})
}

func TestOfManyWhoCreateTheSameSaleOneSucceeds(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		errs := make([]error, 8)
		var done sync.WaitGroup
		for i := range errs {
			done.Go(func() { _, errs[i] = d.CreateSale(t.Context(), draft("s")) })
		}
		done.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, ledger.ErrSaleExists):
				t.Error(err)
			}
		}
		equal(t, "created", won, 1)
	})
}

func TestTheStatusMovesOnlyFromWhereItMay(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		s, err := d.UpdateStatus(t.Context(), "s", []sale.Status{sale.StatusDraft}, sale.StatusApproved)
		must(t, err)
		equal(t, "status", s.Status, sale.StatusApproved)
		equal(t, "revision", s.Revision, 2)
		s, err = d.UpdateStatus(t.Context(), "s", []sale.Status{sale.StatusDraft}, sale.StatusApproved)
		must(t, err)
		equal(t, "revision when it is there already", s.Revision, 2)
		_, err = d.UpdateStatus(t.Context(), "s", []sale.Status{sale.StatusDraft}, sale.StatusPaused)
		var refused *ledger.SaleStatusError
		if !errors.As(err, &refused) || refused.Status != sale.StatusApproved {
			t.Fatalf("got %v", err)
		}
		if _, err := d.UpdateStatus(t.Context(), "none", nil, sale.StatusEnded); !errors.Is(err, ledger.ErrNotFound) {
			t.Fatalf("got %v", err)
		}
		stored, err := d.GetSale(t.Context(), "s")
		must(t, err)
		equal(t, "stored status", stored.Status, sale.StatusApproved)
	})
}

func TestEveryEditCounts(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		var done sync.WaitGroup
		for range 6 {
			done.Go(func() {
				_, err := d.EditSale(t.Context(), "s", ledger.Cause{}, func(s *sale.Sale) error {
					s.PerUserLimit++
					s.Items[0].Stock = 999 // Not the way to change a stock.
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		s, err := d.GetSale(t.Context(), "s")
		must(t, err)
		equal(t, "limit", s.PerUserLimit, 10)
		equal(t, "revision", s.Revision, 7)
		equal(t, "stock", s.Items[0].Stock, 5)
	})
}

func TestSalesAreListedInPages(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		for _, id := range []string{"c", "a", "b"} {
			createSale(t, d, id)
		}
		page, err := d.ListSales(t.Context(), "", 2)
		must(t, err)
		equal(t, "ids", page[0].ID+page[1].ID, "ab")
		equal(t, "items", page[1].Items[1].SKU, "A")
		page, err = d.ListSales(t.Context(), "b", 2)
		must(t, err)
		equal(t, "ids of the second page", len(page), 1)
		if _, err := d.ListSales(t.Context(), "", ledger.PageMax+1); err == nil {
			t.Error("a page without bound")
		}
	})
}

func TestNoGenerationIsGivenTwice(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		var mu sync.Mutex
		given := map[int64]bool{}
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() {
				g, err := d.NextGeneration(t.Context(), "s")
				mu.Lock()
				defer mu.Unlock()
				if err != nil || given[g] {
					t.Errorf("generation %d, %v; given before: %v", g, err, given[g])
				}
				given[g] = true
			})
		}
		done.Wait()
		must(t, d.SetGeneration(t.Context(), "s", 20))
		must(t, d.SetGeneration(t.Context(), "s", 3))
		g, err := d.NextGeneration(t.Context(), "s")
		must(t, err)
		equal(t, "generation", g, 21)
	})
}

func TestRaisingTheStockHappensOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		record(t, d, batchOf(1, grab("s", "ann", "1", "A", 4)))
		up := ledger.Adjustment{SaleID: "s", SKU: "A", Delta: 5, Ref: "more", Actor: "ops", Reason: "found a box"}

		first, err := d.AdjustUp(t.Context(), up)
		must(t, err)
		second, err := d.AdjustUp(t.Context(), up)
		must(t, err)

		equal(t, "before", first.Before, 6)
		equal(t, "after", first.After, 11)
		equal(t, "replayed", first.Replayed, false)
		equal(t, "replayed the second time", second.Replayed, true)
		equal(t, "before the second time", second.Before, 6)
		equal(t, "giveback the second time", second.Giveback.ID, first.Giveback.ID)
		equal(t, "stock", item(t, d, "s", "A").Stock, 15)
		sound(t, d, "s")
	})
}

func TestAnAdjustmentThatCannotBeIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s")
		up := ledger.Adjustment{SaleID: "s", SKU: "A", Delta: 5, Ref: "more"}
		_, err := d.AdjustUp(t.Context(), up)
		must(t, err)
		rows := d.fingerprint(t)
		for name, c := range map[string]struct {
			change func(*ledger.Adjustment)
			want   error
		}{
			"other units":   {func(a *ledger.Adjustment) { a.Delta = 6 }, ledger.ErrRefReused},
			"other item":    {func(a *ledger.Adjustment) { a.SKU = "B" }, ledger.ErrRefReused},
			"unlimited":     {func(a *ledger.Adjustment) { a.SKU, a.Ref = "C", "x" }, ledger.ErrUnlimited},
			"unknown item":  {func(a *ledger.Adjustment) { a.SKU = "Z" }, ledger.ErrUnknownItem},
			"downwards":     {func(a *ledger.Adjustment) { a.Delta, a.Ref = -1, "x" }, nil},
			"without a ref": {func(a *ledger.Adjustment) { a.Ref = "" }, nil},
			"too much":      {func(a *ledger.Adjustment) { a.Delta, a.Ref = sale.MaxStock, "x" }, nil},
		} {
			a := up
			c.change(&a)
			_, err := d.AdjustUp(t.Context(), a)
			var field *sale.FieldError
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &field) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		equal(t, "rows", d.fingerprint(t), rows)
	})
}
