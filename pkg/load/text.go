package load

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%d grabs of %d users in %s: %d requests (%d of them double clicks, %d retries), %.0f a second\n",
		r.Grabs, r.Users, Short(time.Duration(r.Duration)), r.Requests, r.Doubled, r.Retried, r.RequestsPerSecond)
	fmt.Fprintf(w, "%d distinct winners, %d replays, %d contradictions, %d undecided, seed %d\n\n",
		r.DistinctWinners, r.Replayed, r.Contradictions, r.Undecided, r.Seed)
	if r.Problem != "" {
		fmt.Fprintf(w, "first problem: %s\n\n", r.Problem)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "outcome\tgrabs\tanswers\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, class := range Classes {
		l, answered := r.Latency[class]
		if !answered {
			continue
		}
		fmt.Fprintf(table, "%s\t%d\t%s", class, r.Outcomes[class], l.row())
	}
	fmt.Fprintf(table, "%s\t\t%s", "decision", r.Decision.row())
	return table.Flush()
}

func (l *Latency) row() string {
	short := func(d sale.Duration) string { return Short(time.Duration(d)) }
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t\n",
		l.Count, short(l.P50), short(l.P90), short(l.P99), short(l.P999), short(l.Max))
}

// Short writes a duration with three digits.
func Short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
