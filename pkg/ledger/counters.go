package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The counters of a sale's limits. The ledger only counts: Redis has decided what
// fits into a limit, and a maximum may change without touching what is counted.

// counterKey names a row of counters.
type counterKey struct{ saleID, limit, period, subject string }

func (a counterKey) compare(b counterKey) int {
	return cmp.Or(strings.Compare(a.saleID, b.saleID), strings.Compare(a.limit, b.limit),
		strings.Compare(a.period, b.period), strings.Compare(a.subject, b.subject))
}

// name is what the flows call the counter. Neither limit nor period has a slash.
func (a counterKey) name() string { return a.limit + "/" + a.period + "/" + a.subject }

// countersOf names the counters that an order of this user, address and time stands in.
func countersOf(s *sale.Sale, g *sale.Grant) []counterKey {
	counts := s.Counts(g)
	keys := make([]counterKey, len(counts))
	for i, c := range counts {
		keys[i] = counterKey{s.ID, c.Limit.Name(), c.Period, c.Subject}
	}
	return keys
}

// grantOf is as much of an order's grant as tells its counters.
func grantOf(o *sale.Order) *sale.Grant {
	return &sale.Grant{Kind: sale.GrantGrab, OrderID: o.ID, User: o.User, IP: o.IP, At: o.CreatedAt}
}

// countStep is a change of one counter; its flow gets its numbers once the counter
// is locked.
type countStep struct {
	key   counterKey
	units int64 // below zero for what comes back
	flow  flowRow
}

// count adds a grab to the counters of its sale's limits; s is nil for a sale
// without limits. f is the flow of the grab, without its numbers.
func (p *posting) count(s *sale.Sale, g *sale.Grant, f flowRow) {
	if s == nil {
		return
	}
	for _, key := range countersOf(s, g) {
		p.counts = append(p.counts, countStep{key, g.Units(), f})
	}
}

// uncount takes the units of a giveback off the counters that its order stands in,
// and notes in the giveback what Redis has to take off. Where the sale's buyers may
// not grab again the units stay counted against the user: in the limits of each
// user, and in the units that a user holds. s may be nil, f is as for count.
func (p *posting) uncount(s *sale.Sale, o *sale.Order, g *sale.Giveback, f flowRow) {
	if s == nil {
		return
	}
	var units int64
	for _, line := range g.Lines {
		units += line.Quantity
	}
	g.Counts = giveCounts(s, grantOf(o), units, s.NoRegrab)
	if s.NoRegrab {
		g.User = ""
	}
	for _, c := range g.Counts {
		p.counts = append(p.counts, countStep{counterKey{s.ID, c.Limit, c.Period, c.Subject}, -units, f})
	}
}

// giveCounts lists what a giveback takes off the counters of a grant's limits.
func giveCounts(s *sale.Sale, g *sale.Grant, units int64, keepUser bool) []sale.CountStep {
	var steps []sale.CountStep
	for _, c := range s.Counts(g) {
		if keepUser && c.Limit.Scope == sale.ScopeUser {
			continue
		}
		steps = append(steps, sale.CountStep{Limit: c.Limit.Name(), Period: c.Period, Subject: c.Subject, Units: units})
	}
	return steps
}

// writeCounters writes the counters of the posting, locked in order, and gives each
// step its flow.
func (l *Ledger) writeCounters(tx *gorm.DB, p *posting) error {
	if len(p.counts) == 0 {
		return nil
	}
	sums := make(map[counterKey]int64, len(p.counts))
	write := l.addToCounters
	for _, step := range p.counts {
		sums[step.key] += step.units
		if step.units < 0 {
			write = l.takeOffCounters
		}
	}
	used, err := write(tx, slices.SortedFunc(maps.Keys(sums), counterKey.compare), sums)
	if err != nil {
		return err
	}
	for _, step := range p.counts {
		f := step.flow
		f.SaleID, f.Counter, f.At = step.key.saleID, step.key.name(), p.at
		f.QtyBefore = used[step.key]
		f.QtyAfter = max(f.QtyBefore+step.units, 0)
		f.QtyStep = f.QtyAfter - f.QtyBefore
		used[step.key] = f.QtyAfter
		p.flows = append(p.flows, f)
	}
	return nil
}

// addToCounters adds to counters that may not exist yet, and returns what was used of
// them before. Adding first makes and locks them in one order; reading first would let
// two make the same one and wait for each other.
func (l *Ledger) addToCounters(tx *gorm.DB, keys []counterKey, sums map[counterKey]int64) (map[counterKey]int64, error) {
	add := clause.Assignments(map[string]any{"used": gorm.Expr("counters.used + " + l.store.inserted("used"))})
	if err := insert(upsertCounters(tx, add), counterRows(keys, sums), l.cfg.InsertRows); err != nil {
		return nil, fmt.Errorf("add to counters: %w", err)
	}
	used, err := l.readCounters(tx, "counters", keys)
	for key := range used {
		used[key] -= sums[key]
	}
	return used, err
}

// takeOffCounters takes units off counters, never below zero, and returns what was used
// of them before.
func (l *Ledger) takeOffCounters(tx *gorm.DB, keys []counterKey, sums map[counterKey]int64) (map[counterKey]int64, error) {
	used, err := l.readCounters(tx.Clauses(clause.Locking{Strength: "UPDATE"}), l.store.locked("counters"), keys)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(k counterKey) bool { _, there := used[k]; return !there })
	after := make(map[counterKey]int64, len(keys))
	for _, k := range keys {
		after[k] = max(used[k]+sums[k], 0)
	}
	// The rows exist: this is an UPDATE of many rows, each with its own value.
	set := clause.AssignmentColumns([]string{"used"})
	if err := insert(upsertCounters(tx, set), counterRows(keys, after), l.cfg.InsertRows); err != nil {
		return nil, fmt.Errorf("take off counters: %w", err)
	}
	return used, nil
}

func upsertCounters(tx *gorm.DB, do clause.Set) *gorm.DB {
	key := []clause.Column{{Name: "sale_id"}, {Name: "limit_name"}, {Name: "period"}, {Name: "subject"}}
	return tx.Clauses(clause.OnConflict{Columns: key, DoUpdates: do}).Session(&gorm.Session{})
}

func counterRows(keys []counterKey, used map[counterKey]int64) []counterRow {
	rows := make([]counterRow, len(keys))
	for i, k := range keys {
		rows[i] = counterRow{SaleID: k.saleID, LimitName: k.limit, Period: k.period, Subject: k.subject, Used: used[k]}
	}
	return rows
}

// readCounters returns what is used of those of the counters that exist, reading
// in the order of the keys.
func (l *Ledger) readCounters(tx *gorm.DB, from string, keys []counterKey) (map[counterKey]int64, error) {
	tx = tx.Session(&gorm.Session{})
	used := make(map[counterKey]int64, len(keys))
	for len(keys) > 0 {
		first := keys[0]
		var subjects []string
		for len(keys) > 0 && len(subjects) < l.cfg.InsertRows && keys[0] == (counterKey{first.saleID, first.limit, first.period, keys[0].subject}) {
			subjects, keys = append(subjects, keys[0].subject), keys[1:]
		}
		var rows []counterRow
		err := tx.Table(from).
			Where("sale_id = ? AND limit_name = ? AND period = ? AND subject IN ?", first.saleID, first.limit, first.period, subjects).
			Order("sale_id, limit_name, period, subject").Find(&rows).Error
		if err != nil {
			return nil, fmt.Errorf("read counters of sale %s: %w", first.saleID, err)
		}
		for _, r := range rows {
			used[counterKey{r.SaleID, r.LimitName, r.Period, r.Subject}] = r.Used
		}
	}
	return used, nil
}

// countedMax bounds the sales whose limits are kept in memory.
const countedMax = 20_000

// countedSales remembers what each sale counts: its limits, but not their maxima,
// and its timezone. Neither changes once a sale is no draft any more, and a draft
// is not remembered.
type countedSales struct {
	mu     sync.Mutex
	bySale map[string]*sale.Sale // nil for a sale without limits
}

func (c *countedSales) get(saleID string) (s *sale.Sale, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known = c.bySale[saleID]
	return s, known
}

func (c *countedSales) put(saleID string, s *sale.Sale) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bySale == nil || len(c.bySale) >= countedMax {
		c.bySale = make(map[string]*sale.Sale)
	}
	c.bySale[saleID] = s
}

// limited returns those of the sales that have limits, for counting only.
func (l *Ledger) limited(tx *gorm.DB, entries []entry) (map[string]*sale.Sale, error) {
	found := make(map[string]*sale.Sale)
	var unknown []string
	for _, e := range entries {
		if _, seen := found[e.saleID]; seen || e.invalid != nil {
			continue
		}
		s, known := l.counted.get(e.saleID)
		found[e.saleID] = s
		if !known {
			unknown = append(unknown, e.saleID)
		}
	}
	for chunk := range slices.Chunk(unknown, l.cfg.InsertRows) {
		headers, err := saleHeaders(tx, chunk)
		if err != nil {
			return nil, err
		}
		for id, s := range headers {
			if len(s.Limits) > 0 {
				found[id] = s
			}
			if s.Status != sale.StatusDraft {
				l.counted.put(id, found[id])
			}
		}
	}
	return found, nil
}

// saleHeaders reads sales without their items and without locking them.
func saleHeaders(tx *gorm.DB, ids []string) (map[string]*sale.Sale, error) {
	var rows []saleRow
	if err := tx.Where("id IN ?", ids).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read the rules of sales: %w", err)
	}
	headers := make(map[string]*sale.Sale, len(rows))
	for i := range rows {
		s, err := rows[i].sale(nil)
		if err != nil {
			return nil, err
		}
		headers[s.ID] = &s
	}
	return headers, nil
}

// Used is how many units one counter of a sale's limits has counted, named as in
// sale.Count: granted in the period and not come back, as far as the orders are written.
func (l *Ledger) Used(ctx context.Context, saleID, limit, period, subject string) (int64, error) {
	row, err := take[counterRow](l.read.WithContext(ctx).
		Where("sale_id = ? AND limit_name = ? AND period = ? AND subject = ?", saleID, limit, period, subject))
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("counter of sale %s: %w", saleID, err)
	}
	return row.Used, nil
}

// visitCounters visits the counters of a sale in the order of their keys.
func visitCounters(tx *gorm.DB, saleID string, visit func(limit, period, subject string, used int64) error) error {
	query := tx.Model(&counterRow{}).Select("limit_name", "period", "subject", "used").Where("sale_id = ?", saleID).
		Order("limit_name, period, subject")
	return eachRow(query, func(scan scanner) error {
		var limit, period, subject string
		var used int64
		if err := scan(&limit, &period, &subject, &used); err != nil {
			return err
		}
		return visit(limit, period, subject, used)
	})
}
