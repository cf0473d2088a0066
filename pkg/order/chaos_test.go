package order_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// TestAnyMixOfPoisonAndGoodGrantsIsToldApart publishes random messages with random
// poison of every kind, and holds that each good grant has its order, each
// poisonous one its dead letter, and no message is left.
func TestAnyMixOfPoisonAndGoodGrantsIsToldApart(t *testing.T) {
	d := openDesk(t, 100_000)
	d.exec("ALTER TABLE orders ADD CONSTRAINT refusal CHECK (user_id NOT LIKE 'row-%')")
	d.exec(`CREATE TRIGGER refusal BEFORE INSERT ON orders FOR EACH ROW
		IF NEW.user_id LIKE 'unknown-%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by a trigger'; END IF`)
	seed := harness.Seed(t)
	random := rand.New(rand.NewPCG(seed, seed))
	good, dead := make(map[string]bool), make(map[string]bool)
	corrupt := 0
	users := 0
	for range 60 {
		if random.IntN(10) == 0 {
			d.begin()
		}
		if random.IntN(15) == 0 {
			d.publishRaw(fmt.Appendf(nil, "garbage %d", random.Uint64()))
			corrupt++
		}
		poisonous := random.IntN(3) == 0
		var grants []sale.Grant
		for range random.IntN(60) {
			kind, sku, sort := "good", "A", good
			if poisonous && random.IntN(8) == 0 {
				kind = []string{"row", "unknown", "item"}[random.IntN(3)]
				sort = dead
			}
			if kind == "item" {
				sku = "NOT-AN-ITEM"
			}
			users++
			g := d.grant(fmt.Sprintf("%s-%d", kind, users), sku, 1)
			grants = append(grants, g)
			sort[g.OrderID] = true
		}
		d.publish(grants...)
	}
	d.work(quick)
	d.awaitProgress(d.lastSeq())
	d.awaitSettled()

	d.requireOneOrderEach(len(good))
	letters := get[[]ledger.DeadLetter](t)(d.ledger.ListDead(t.Context(), d.sale.ID, "", ledger.PageMax))
	found := make(map[string]bool)
	messages := 0
	for _, letter := range letters {
		if _, _, ok := sale.ParseOrderID(letter.OrderID); ok {
			found[letter.OrderID] = true
			continue
		}
		messages++
	}
	if !maps.Equal(found, dead) {
		t.Errorf("dead letters are %v, want %v", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(dead)))
	}
	if messages != corrupt {
		t.Errorf("%d dead messages, want %d", messages, corrupt)
	}
}
