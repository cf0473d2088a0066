package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestADraftMayChangeEverything(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s1")
		items := []sale.Item{{SKU: "A", Stock: 1, PriceCents: 7}, {SKU: "new", Stock: sale.Unlimited}}
		edited, err := d.EditDraft(t.Context(), "s1", func(s *sale.Sale) error {
			s.Name, s.Timezone, s.Items = "renamed", "UTC", items
			return nil
		})
		must(t, err)
		equal(t, "revision", edited.Revision, 2)
		got, err := d.GetSale(t.Context(), "s1")
		must(t, err)
		equal(t, "name", got.Name, "renamed")
		if !slices.Equal(got.Items, items) {
			t.Errorf("items %v, want %v", got.Items, items)
		}

		same, err := d.EditDraft(t.Context(), "s1", func(*sale.Sale) error { return nil })
		must(t, err)
		equal(t, "revision of an edit that changes nothing", same.Revision, 2)
	})
}

func TestOnlyADraftIsEditedAsOne(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		createSale(t, d, "s1")
		_, err := d.UpdateStatus(t.Context(), "s1", []sale.Status{sale.StatusDraft}, sale.StatusApproved)
		must(t, err)
		_, err = d.EditDraft(t.Context(), "s1", func(s *sale.Sale) error { s.Items = s.Items[:1]; return nil })
		var state *ledger.SaleStatusError
		if !errors.As(err, &state) || state.Status != sale.StatusApproved {
			t.Errorf("edit of an approved sale: %v", err)
		}
		got, err := d.GetSale(t.Context(), "s1")
		must(t, err)
		equal(t, "items", len(got.Items), 3)
	})
}
