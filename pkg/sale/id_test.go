package sale_test

import (
	"testing"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"pgregory.net/rapid"
)

func TestOneKeyNamesOneOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		saleID := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,63}`).Draw(t, "sale")
		user := rapid.StringN(1, 40, -1).Draw(t, "user")
		key := rapid.StringN(1, 40, -1).Draw(t, "key")
		id := sale.OrderID(saleID, user, key)
		if again := sale.OrderID(saleID, user, key); again != id {
			t.Fatalf("same key gave %q and %q", id, again)
		}
		if other := sale.OrderID(saleID, user, key+"x"); other == id {
			t.Fatalf("another key gave the same order %q", id)
		}
		if moved := sale.OrderID(saleID, user+key[:1], key[1:]+"y"); moved == id {
			t.Fatalf("another user gave the same order %q", id)
		}
		gotSale, owner, ok := sale.ParseOrderID(id)
		if !ok || gotSale != saleID || owner != sale.OwnerTag(user) {
			t.Fatalf("parsed %q as %q, %d, %v", id, gotSale, owner, ok)
		}
	})
}

func TestNoKeyNamesANewOrderEachTime(t *testing.T) {
	if sale.OrderID("s", "u", "") == sale.OrderID("s", "u", "") {
		t.Error("two requests without a key share an order id")
	}
}

func TestForeignOrderIDsAreRefused(t *testing.T) {
	for _, id := range []string{"", "s", "s.", ".00", "s.zz", "a b.00000000000000000000000000", "s.0000000000000000000000000u"} {
		if _, _, ok := sale.ParseOrderID(id); ok {
			t.Errorf("%q was taken for an order id", id)
		}
	}
}
