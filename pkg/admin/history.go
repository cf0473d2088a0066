package admin

import (
	"net/http"
	"strconv"

	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// listChanges shows who changed a sale, from what to what, when and why.
func (a *API) listChanges(r *http.Request) (answer, error) {
	s, err := a.sale(r)
	if err != nil {
		return answer{}, err
	}
	q := newQuery(r, "cursor", "limit")
	limit, after := q.limit(), q.numberCursor()
	if q.failed != nil {
		return answer{}, q.failed
	}
	found, err := a.Ledger.ListChanges(r.Context(), s.ID, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	page, next := nextCursor(found, limit, func(c ledger.Change) string { return strconv.FormatInt(c.Seq, 10) })
	return ok(struct {
		Changes    []ledger.Change `json:"changes"`
		NextCursor *string         `json:"next_cursor"`
	}{page, next}), nil
}
