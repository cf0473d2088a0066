package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func (a *API) listFlows(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "sku", "counter", "order_id", "cursor", "limit")
	limit := q.limit()
	ask := ledger.FlowQuery{
		SaleID: s.ID, SKU: q.text("sku"), Counter: q.text("counter"), OrderID: q.text("order_id"),
		After: q.numberCursor(), Limit: limit + 1,
	}
	if _, known := s.Item(ask.SKU); !known && q.values.Has("sku") {
		q.fail("sku", "is not an item of this sale")
	}
	if q.values.Has("counter") && !countedIn(&s, ask.Counter) {
		q.fail("counter", "must be LIMIT/PERIOD/SUBJECT, such as user_day/2026-11-27/ann, of a limit of this sale")
	}
	if q.values.Has("sku") && q.values.Has("counter") {
		q.fail("counter", "a line is of an item or of a counter")
	}
	if of, _, valid := sale.ParseOrderID(ask.OrderID); q.values.Has("order_id") && (!valid || of != s.ID) {
		q.fail("order_id", "is not the id of an order of this sale")
	}
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListFlows(r.Context(), ask)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(f sale.Flow) string { return strconv.FormatInt(f.Seq, 10) })
	return ok(struct {
		Flows      []sale.Flow `json:"flows"`
		NextCursor *string     `json:"next_cursor"`
	}{page, next}), nil
}

// countedIn reports whether a counter can be one of the sale's limits.
func countedIn(s *sale.Sale, counter string) bool {
	name, rest, ok := strings.Cut(counter, "/")
	return ok && strings.Contains(rest, "/") &&
		slices.ContainsFunc(s.Limits, func(l sale.Limit) bool { return l.Name() == name })
}
