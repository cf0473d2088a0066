package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/doorbuster/doorbuster/pkg/web"
)

// Bounds of one page of a listing.
const (
	pageDefault = 50
	pageMax     = 200
)

// query reads the parameters of a request: each known one at most once, no
// others. A misspelt filter must not answer with everything.
type query struct {
	values url.Values
	failed *web.Problem
}

func newQuery(r *http.Request, known ...string) query {
	q := query{values: r.URL.Query()}
	for name, values := range q.values {
		switch {
		case len(values) > 1:
			q.fail(name, "the parameter is given more than once")
		case !slices.Contains(known, name):
			q.fail(name, "there is no such parameter")
		}
	}
	return q
}

func (q *query) fail(name, detail string) {
	if q.failed == nil {
		q.failed = web.InvalidField(name, detail)
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// limit is how many entries a page holds.
func (q *query) limit() int {
	text := q.text("limit")
	if !q.values.Has("limit") {
		return pageDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > pageMax {
		q.fail("limit", fmt.Sprintf("must be 1 to %d", pageMax))
	}
	return n
}

// numberCursor is a cursor that counts. An empty one, as 0, begins at the start.
func (q *query) numberCursor() int64 {
	if q.text("cursor") == "" {
		return 0
	}
	n, err := strconv.ParseInt(q.text("cursor"), 10, 64)
	if err != nil || n < 0 {
		q.badCursor()
	}
	return n
}

// textCursor is a cursor that valid knows. An empty one begins at the start.
func (q *query) textCursor(valid func(string) bool) string {
	text := q.text("cursor")
	if text != "" && !valid(text) {
		q.badCursor()
	}
	return text
}

func (q *query) badCursor() { q.fail("cursor", "must be the next_cursor of the page before") }

// flag is a parameter that stands alone or is true or false.
func (q *query) flag(name string) bool {
	if !q.values.Has(name) {
		return false
	}
	switch q.text(name) {
	case "", "true", "1":
		return true
	case "false", "0":
		return false
	}
	q.fail(name, "must be true or false")
	return false
}

// nextCursor is the cursor after a page, nil when the page is the last one.
// Listings ask for one entry more than a page holds to know.
func nextCursor[T any](found []T, limit int, cursor func(T) string) (page []T, next *string) {
	if len(found) <= limit {
		if found == nil {
			found = []T{} // a list in JSON, not null
		}
		return found, nil
	}
	page = found[:limit]
	text := cursor(page[limit-1])
	return page, &text
}
