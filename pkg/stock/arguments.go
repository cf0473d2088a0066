package stock

import (
	"strconv"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// arguments are the KEYS and ARGV of a batch that depend on its asks.
type arguments struct {
	skus []string // in the order of their stock keys
	used []usedKey
	args []any
	// records are those of all asks, joined.
	records []byte
	// shared is, per ask, the number of the used key of its first limit of scope sale,
	// counted from 1; nil when no limit is of that scope.
	shared []int
}

// sharedBy returns the used key in which an ask counts for everybody; -1 when there is
// none.
func (in *arguments) sharedBy(ask int) int {
	if in.shared == nil {
		return -1
	}
	return in.shared[ask] - 1
}

// usedKey is one limit in one of its periods.
type usedKey struct {
	limit   sale.Limit
	period  string
	expires time.Time // zero is never
}

// UsedGrace is how long the count of a window is kept after its end: longer than
// any clock of a grab process may be slow.
const UsedGrace = 48 * time.Hour

// usedUntil is when the count of the window that holds at may go; zero is never.
func usedUntil(w sale.LimitWindow, at time.Time, zone *time.Location) time.Time {
	end := w.End(at, zone)
	if end.IsZero() {
		return end
	}
	return end.Add(UsedGrace)
}

// unixMilli writes a time for a script; the zero time is 0.
func unixMilli(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// everybody is the subject of a limit of scope sale, as it stands in Redis.
const everybody = "*"

func storedSubject(limit, subject string) string {
	if ofEverybody(limit) {
		return everybody
	}
	return subject
}

// ofEverybody reports whether a limit of this name is of scope sale.
func ofEverybody(limit string) bool { return strings.HasPrefix(limit, string(sale.ScopeSale)+"_") }

// arguments puts the columns of grab.lua together.
func (b *Batch) arguments() arguments {
	var in arguments
	lines := b.lineTexts(&in)
	counts := b.countTexts(&in)
	grants := b.storedGrants(&in)
	in.args = make([]any, 0, 7+3*len(in.used)+5*len(b.Asks))
	in.args = append(in.args, b.PerUser, b.Process, b.Number, b.Acked, b.PerSecond, len(in.skus), in.records)
	for _, u := range in.used {
		in.args = append(in.args, string(u.limit.Scope), u.limit.Max, unixMilli(u.expires))
	}
	// Pointers, because a string in an any is an allocation.
	for i := range b.Asks {
		in.args = append(in.args, &b.Asks[i].Grant.User)
	}
	for i := range b.Asks {
		in.args = append(in.args, &b.Asks[i].Grant.OrderID)
	}
	for i := range lines {
		in.args = append(in.args, &lines[i])
	}
	for i := range grants {
		in.args = append(in.args, grants[i])
	}
	for i := range counts {
		in.args = append(in.args, &counts[i])
	}
	return in
}

// lineTexts writes the lines of each ask and lists the SKUs they name.
func (b *Batch) lineTexts(in *arguments) []string {
	index := make(map[string]int, 4)
	texts := make([]string, len(b.Asks))
	var text []byte
	for i := range b.Asks {
		text = text[:0]
		for _, l := range b.Asks[i].Grant.Lines {
			at, ok := index[l.SKU]
			if !ok {
				in.skus = append(in.skus, l.SKU)
				at = len(in.skus)
				index[l.SKU] = at
			}
			text = strconv.AppendInt(text, int64(at), 10)
			text = append(text, ':')
			text = strconv.AppendInt(text, l.Quantity, 10)
			text = append(text, ',')
		}
		if i > 0 && texts[i-1] == string(text) { // most grabs of a sale look alike
			texts[i] = texts[i-1]
		} else {
			texts[i] = string(text)
		}
	}
	return texts
}

// storedGrants writes each ask's grant as it is to be stored, and joins the records.
func (b *Batch) storedGrants(in *arguments) [][]byte {
	head := append(strconv.AppendUint([]byte(b.Process+" "), b.Number, 10), '\n')
	size := 0
	for i := range b.Asks {
		size += len(b.Asks[i].Record)
	}
	in.records = make([]byte, 0, size)
	all := make([]byte, 0, size+len(head)*len(b.Asks))
	grants := make([][]byte, len(b.Asks))
	for i := range b.Asks {
		in.records = append(in.records, b.Asks[i].Record...)
		from := len(all)
		all = append(append(all, head...), b.Asks[i].Record...)
		grants[i] = all[from:len(all):len(all)]
	}
	return grants
}

// share notes the used key of one of n asks, unless it has one.
func (in *arguments) share(ask, at, n int) {
	if in.shared == nil {
		in.shared = make([]int, n)
	}
	if in.shared[ask] == 0 {
		in.shared[ask] = at
	}
}

// countTexts writes which counters each ask adds to, and lists their keys; nil where
// nothing is counted.
func (b *Batch) countTexts(in *arguments) []string {
	if len(b.Limits) == 0 {
		return nil
	}
	zone := b.Zone
	if zone == nil {
		zone = time.UTC
	}
	index := make(map[string]int, len(b.Limits))
	texts := make([]string, len(b.Asks))
	for i := range b.Asks {
		g := b.Asks[i].Grant
		var text []byte
		ip := ""
		if g.Kind != sale.GrantAdjust {
			for _, l := range b.Limits {
				period := l.Window.Period(g.At, zone)
				at, ok := index[l.Name()+":"+period]
				if !ok {
					in.used = append(in.used, usedKey{l, period, usedUntil(l.Window, g.At, zone)})
					at = len(in.used)
					index[l.Name()+":"+period] = at
				}
				text = strconv.AppendInt(text, int64(at), 10)
				text = append(text, ',')
				if l.Scope == sale.ScopeIP {
					ip = l.Subject(g)
				}
				if l.Scope == sale.ScopeSale {
					in.share(i, at, len(b.Asks))
				}
			}
		}
		texts[i] = string(text) + " " + ip
	}
	if len(in.used) == 0 { // adjustments only
		return nil
	}
	return texts
}
