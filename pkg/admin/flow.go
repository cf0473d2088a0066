package admin

import (
	"net/http"
	"strconv"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

func (a *API) listFlows(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "sku", "cursor", "limit")
	sku, limit, after := q.text("sku"), q.limit(), q.numberCursor()
	if _, known := s.Item(sku); !known && q.values.Has("sku") {
		q.fail("sku", "is not an item of this sale")
	}
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListFlows(r.Context(), s.ID, sku, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(f sale.Flow) string { return strconv.FormatInt(f.Seq, 10) })
	return ok(struct {
		Flows      []sale.Flow `json:"flows"`
		NextCursor *string     `json:"next_cursor"`
	}{page, next}), nil
}
