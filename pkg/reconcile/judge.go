package reconcile

import (
	"fmt"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// judge turns what was read into checks.
func (v *verification) judge(fromLedger []ledger.Check) {
	for _, c := range fromLedger {
		v.add(Check{Name: "ledger_" + c.Name, Guarantee: ledgerGuarantees[c.Name], OK: c.OK, Detail: c.Detail})
	}
	v.judgeGrants()
	v.add(verdict("stream_written", guaranteeOneOrder, v.unwritten, nil))
	v.add(verdict("one_order_per_key", guaranteeOneKey, v.badKeys, nil))
	v.add(verdict("nothing_taken_twice", guaranteeNoOversell, v.books.Violations, nil))
	if v.out.Loaded {
		v.judgeRedis()
	}
	v.inform()
}

func (v *verification) add(c Check) { v.out.Checks = append(v.out.Checks, c) }

func verdict(name string, guarantee int, found Violations, numbers map[string]int64) Check {
	c := Check{Name: name, Guarantee: guarantee, OK: found.Count == 0, Numbers: numbers}
	if !c.OK {
		c.Detail = fmt.Sprintf("%d violations: %s", found.Count, strings.Join(found.Details, "; "))
	}
	return c
}

// judgeGrants holds at every moment: a message that the ledger has written has an
// order, or a dead letter, for each of its grants, and an order has its grant.
func (v *verification) judgeGrants() {
	var lost Violations
	var grants, unwritten int64
	for id, m := range v.marks {
		if m&inStream == 0 {
			continue
		}
		grants++
		switch {
		case m&(inOrders|inLedger) != 0:
		case m&inWritten != 0:
			lost.Addf("grant %s has no order", id)
		default:
			unwritten++
		}
	}
	v.add(verdict("grants_have_orders", guaranteeOneOrder, lost,
		map[string]int64{"grants": grants, "not_written_yet": unwritten, "adjustments": v.adjusts}))
	v.add(verdict("orders_have_grants", guaranteeOneOrder, v.strayOrders,
		map[string]int64{"orders": v.orders, "older_than_the_stream": v.oldOrders}))
}

// judgeRedis judges what holds at every moment and, at rest, that Redis has
// exactly what the books say.
func (v *verification) judgeRedis() {
	var oversold Violations
	for _, it := range v.sale.Items {
		left := v.redis.state.Remaining[it.SKU]
		if it.Stock != sale.Unlimited && (left < 0 || left > it.Stock) {
			oversold.Addf("%d of %s are left in Redis, the stock is %d", left, it.SKU, it.Stock)
		}
	}
	if v.out.AtRest {
		v.add(verdict("redis_within_stock", guaranteeNoOversell, oversold, nil))
	}
	v.add(verdict("redis_limits", guaranteeLimits, v.redis.overLimit, nil))
	if !v.out.AtRest {
		return
	}
	var remaining, grants Violations
	for sku, want := range v.books.Remaining {
		if left := v.redis.state.Remaining[sku]; left != want {
			remaining.Addf("%d of %s are left in Redis, %d in the books", left, sku, want)
		}
	}
	for id, m := range v.marks {
		switch m & (inFold | inRedis) {
		case inFold:
			grants.Addf("grant %s is not in Redis", id)
		case inRedis:
			grants.Addf("grant %s is in Redis only", id)
		}
	}
	v.add(verdict("redis_remaining", guaranteeAtRest, remaining, v.redis.state.Remaining))
	v.add(verdict("redis_buyers", guaranteeAtRest, v.redis.buyers, map[string]int64{"buyers": v.redis.userCount}))
	v.add(verdict("redis_holdings", guaranteeAtRest, v.redis.holdings, nil))
	v.add(verdict("redis_counters", guaranteeAtRest, v.redis.counts, map[string]int64{"counters": v.redis.countCount}))
	v.add(verdict("redis_grants", guaranteeAtRest, grants, map[string]int64{"grants": v.redis.grants}))
	v.add(verdict("redis_givebacks", guaranteeReturns, v.redis.givebacks, map[string]int64{"givebacks": v.redis.backsCount}))
}

// inform tells what is no violation and yet worth knowing.
func (v *verification) inform() {
	if !v.out.Loaded {
		detail := "the sale is not loaded: nothing is sold until it is restored"
		if !v.cfg.loadable(&v.sale, v.now()) {
			detail = "the sale is a draft or over: it is not kept loaded"
		}
		v.add(Check{Name: "loaded", Guarantee: guaranteeRecovery, OK: true, Informational: true, Detail: detail})
	}
	if v.deadLetters > 0 {
		v.add(Check{
			Name: "dead_letters", Guarantee: guaranteeOneOrder, OK: true, Informational: true,
			Detail:  "open dead letters hold stock until they are replayed or cancelled",
			Numbers: map[string]int64{"open": v.deadLetters},
		})
	}
	numbers := make(map[string]int64, len(v.books.Remaining))
	soldOut := true
	for sku, left := range v.books.Remaining {
		numbers[sku] = left
		soldOut = soldOut && left == 0
	}
	sold := Check{Name: "sold_out", Guarantee: guaranteeAtRest, OK: true, Informational: true, Numbers: numbers}
	if soldOut {
		sold.Detail = "exactly the whole stock is sold"
	}
	v.add(sold)
}
