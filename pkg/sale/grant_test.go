package sale_test

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestAnAdjustmentTellsWhoAndWhy(t *testing.T) {
	for _, c := range []struct{ key, actor, reason string }{
		{sale.AdjustmentNote("ops", "broken\nunits"), "ops", "broken\nunits"},
		{sale.AdjustmentNote("two\nlines", "why"), "two lines", "why"},
		{sale.AdjustmentNote("", ""), "", ""},
		{"only a reason", "", "only a reason"},
	} {
		g := sale.Grant{Kind: sale.GrantAdjust, Key: c.key}
		if actor, reason := g.AdjustmentNote(); actor != c.actor || reason != c.reason {
			t.Errorf("%q: got %q, %q", c.key, actor, reason)
		}
	}
}
