package ledger

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// verifyCounters checks what the limits of a sale count:
//
//	counters_equal_flows   each counter is what its lines of the log add up to
//	counters_equal_orders  each counter is what the orders of its period hold
//	limits                 no line ever went above what its limit allowed at any time
func verifyCounters(tx *gorm.DB, s *sale.Sale, most highest) ([]Check, error) {
	sums, over, err := sumFlows(tx, s, most)
	if err != nil {
		return nil, fmt.Errorf("sum up the flows of counters: %w", err)
	}
	expected, err := recount(tx, s, most.noRegrab)
	if err != nil {
		return nil, fmt.Errorf("recount the orders: %w", err)
	}
	var unlogged, miscounted violations
	err = visitCounters(tx, s.ID, func(limit, period, subject string, used int64) error {
		name := counterKey{s.ID, limit, period, subject}.name()
		if sums[name] != used {
			unlogged.add(fmt.Sprintf("%s is %d, its flows add up to %d", name, used, sums[name]))
		}
		if expected[name] != used {
			miscounted.add(fmt.Sprintf("%s is %d, the orders say %d", name, used, expected[name]))
		}
		delete(sums, name)
		delete(expected, name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	for name, units := range sums {
		unlogged.add(fmt.Sprintf("%s has flows of %d units and no counter", name, units))
	}
	for name, units := range expected {
		miscounted.add(fmt.Sprintf("%s has orders of %d units and no counter", name, units))
	}
	return []Check{unlogged.check("counters_equal_flows"), miscounted.check("counters_equal_orders"), over.check("limits")}, nil
}

// sumFlows adds the lines of each counter up, and finds those that went too high.
func sumFlows(tx *gorm.DB, s *sale.Sale, most highest) (sums map[string]int64, over violations, err error) {
	sums = make(map[string]int64)
	query := tx.Model(&flowRow{}).Select("counter", "SUM(qty_step)", "MAX(qty_after)").
		Where("sale_id = ? AND sku = '' AND counter <> ''", s.ID).Group("counter")
	err = eachRow(query, func(scan scanner) error {
		var name string
		var sum, top int64
		if err := scan(&name, &sum, &top); err != nil {
			return err
		}
		sums[name] = sum
		limit, _, _ := strings.Cut(name, "/")
		if allowed, known := most.max[limit]; !known || top > allowed {
			over.add(fmt.Sprintf("%s reached %d, never were more allowed than %d", name, top, allowed))
		}
		return nil
	})
	return sums, over, err
}

// recount counts, from the orders, what each counter must say: what they hold. Where
// units that came back may have stayed counted against their user, a user's are
// what the orders took, minus what the givebacks say was taken off.
func recount(tx *gorm.DB, s *sale.Sale, mayKeep bool) (map[string]int64, error) {
	counted := make(map[string]int64)
	if len(s.Limits) == 0 {
		return counted, nil
	}
	keeps := make(map[string]bool, len(s.Limits))
	for _, l := range s.Limits {
		keeps[l.Name()] = mayKeep && l.Scope == sale.ScopeUser
	}
	query := ofSale(tx.Model(&orderRow{}), s.ID).Select("user_id", "ip", "items", "created_at").
		Where("NOT (status = ? AND reason <> ?)", sale.OrderRejected, sale.ReasonFulfilmentFailed)
	var items sql.RawBytes
	err := eachRow(query, func(scan scanner) error {
		var o sale.Order
		if err := scan(&o.User, &o.IP, &items, &o.CreatedAt); err != nil {
			return err
		}
		if err := json.Unmarshal(items, &o.Lines); err != nil {
			return fmt.Errorf("items of an order: %w", err)
		}
		var took, holds int64
		for _, line := range o.Lines {
			took, holds = took+line.Quantity, holds+line.Quantity-line.Returned
		}
		for _, key := range countersOf(s, grantOf(&o)) {
			if keeps[key.limit] {
				counted[key.name()] += took
			} else {
				counted[key.name()] += holds
			}
		}
		return nil
	})
	if err != nil || !mayKeep {
		return counted, err
	}
	return counted, takeOff(tx, s, keeps, counted)
}

// takeOff subtracts what givebacks took off the counters that may keep units. What
// came back without ever having been recorded was never counted here.
func takeOff(tx *gorm.DB, s *sale.Sale, keeps map[string]bool, counted map[string]int64) error {
	query := tx.Table("givebacks g").Select("g.counts").Joins("JOIN orders o ON o.id = g.order_id").
		Where("g.sale_id = ? AND NOT (o.status = ? AND o.reason <> ?)", s.ID, sale.OrderRejected, sale.ReasonFulfilmentFailed)
	var text sql.RawBytes
	return eachRow(query, func(scan scanner) error {
		if err := scan(&text); err != nil {
			return err
		}
		var counts []sale.CountStep
		if err := json.Unmarshal(text, &counts); err != nil {
			return fmt.Errorf("counts of a giveback: %w", err)
		}
		for _, c := range counts {
			if keeps[c.Limit] {
				counted[counterKey{s.ID, c.Limit, c.Period, c.Subject}.name()] -= c.Units
			}
		}
		return nil
	})
}
