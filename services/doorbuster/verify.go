package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
)

// verifyCommand checks every guarantee for a sale.
type verifyCommand struct {
	Sale     string       `arg:"" help:"Id of the sale."`
	API      apiFlags     `embed:"" group:"API"`
	Backends backendFlags `embed:""`
	JSON     bool         `name:"json" env:"-" help:"Print the whole report as JSON."`
	// A sale at work never rests; one that has just stopped does within a second or two.
	Wait time.Duration `name:"wait" env:"-" default:"3s" min:"0s" max:"1m" help:"How long to wait for the sale to be at rest, so that Redis and the ledger can be compared exactly."`
}

// Run prints a line per check. The answer is no when a guarantee is broken.
func (c *verifyCommand) Run(ctx context.Context, parsed *kong.Context, term terminal) error {
	v, err := c.verify(ctx, parsed, term)
	if err != nil {
		return fmt.Errorf("nothing was checked: %w", err)
	}
	if c.JSON {
		err = writeJSON(term.out, v)
	} else {
		err = writeVerification(term.out, &v)
	}
	if err != nil {
		return err
	}
	if !v.OK {
		return no("")
	}
	return nil
}

func (c *verifyCommand) verify(ctx context.Context, parsed *kong.Context, term terminal) (reconcile.Verification, error) {
	if c.Backends.chosen(parsed) {
		log := slog.New(slog.NewTextHandler(term.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
		r, done, err := c.Backends.reconciler(ctx, log)
		if err != nil {
			return reconcile.Verification{}, err
		}
		defer done()
		fmt.Fprintf(term.err, "checking directly: %s\n", c.Backends.told())
		return atRestWithin(ctx, c.Wait, c.Sale, r.Verify)
	}
	a, err := c.API.client()
	if err != nil {
		return reconcile.Verification{}, err
	}
	defer a.close()
	fmt.Fprintf(term.err, "checking by URL %s\n", a.base)
	return atRestWithin(ctx, c.Wait, c.Sale, a.verify)
}

// atRestWithin looks at a sale again, for as long as wait, while what it finds is
// that the sale moves, and returns the last look. A violation is not waited out.
func atRestWithin(
	ctx context.Context, wait time.Duration, saleID string,
	look func(ctx context.Context, saleID string) (reconcile.Verification, error),
) (reconcile.Verification, error) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		v, err := look(ctx, saleID)
		if err != nil || v.AtRest || !v.OK {
			return v, err
		}
		pause := time.NewTimer(restPoll)
		select {
		case <-pause.C:
		case <-end.C:
			pause.Stop()
			return v, nil
		case <-ctx.Done():
			pause.Stop()
			return v, ctx.Err()
		}
	}
}

func (a *api) verify(ctx context.Context, saleID string) (reconcile.Verification, error) {
	v, err := get[reconcile.Verification](ctx, a, call{method: http.MethodGet, path: adminSales(saleID, "verify")})
	if err == nil && (v.SaleID != saleID || len(v.Checks) == 0) { // where nothing was checked, nothing failed
		err = fmt.Errorf("%s answered what is no verification of sale %s", a.base, saleID)
	}
	return v, err
}

// guarantees are the promises in short, by their number in docs/architecture.md.
var guarantees = map[int]string{
	1: "no oversell",
	2: "limits hold",
	3: "one order per win",
	4: "one answer per key",
	5: "returns once",
	6: "counts agree at rest",
	7: "recovers by itself",
}

// writeVerification writes the checks for a person, by guarantee.
func writeVerification(w io.Writer, v *reconcile.Verification) error {
	t := newTable(w, "GUARANTEE", "CHECK", "RESULT", "NUMBERS")
	checks := slices.SortedStableFunc(slices.Values(v.Checks), func(a, b reconcile.Check) int { return a.Guarantee - b.Guarantee })
	violated, notes := 0, 0
	for _, c := range checks {
		result := "holds"
		switch {
		case !c.OK:
			result = "VIOLATED"
			violated++
		case c.Informational:
			result = "note"
			notes++
		}
		text := numbers(c.Numbers)
		if c.Name == "sold_out" {
			text = unitsLeft(c.Numbers)
		}
		t.row(fmt.Sprintf("%d %s", c.Guarantee, guarantees[c.Guarantee]), c.Name, result, strings.TrimSpace(text+" "+c.Detail))
	}
	left := skipped(v)
	for _, c := range left {
		t.row(fmt.Sprintf("%d %s", c.Guarantee, guarantees[c.Guarantee]), c.Name, "skipped", c.Detail)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nsale %s: %s, %d violated", v.SaleID, counted(judged(v), "check"), violated)
	if notes > 0 {
		fmt.Fprintf(w, ", %s", counted(notes, "note"))
	}
	if len(left) > 0 {
		fmt.Fprintf(w, ", %d skipped", len(left))
	}
	fmt.Fprintf(w, ", in %s\n", load.Short(time.Duration(v.Duration)))
	if !v.AtRest {
		fmt.Fprintf(w, "not at rest, so that Redis and the ledger could not be compared exactly: %s\n", strings.Join(v.Moving, "; "))
	}
	return nil
}

// comparisons are the checks that a sale must be loaded and at rest for.
var comparisons = []reconcile.Check{
	{Guarantee: 1, Name: "redis_within_stock"},
	{Guarantee: 5, Name: "redis_givebacks"},
	{Guarantee: 6, Name: "redis_remaining"},
	{Guarantee: 6, Name: "redis_buyers"},
	{Guarantee: 6, Name: "redis_holdings"},
	{Guarantee: 6, Name: "redis_grants"},
}

// skipped returns the comparisons that were not made, with the reason.
func skipped(v *reconcile.Verification) []reconcile.Check {
	why := "not at rest"
	if !v.Loaded {
		why = "not loaded"
	}
	var left []reconcile.Check
	for _, c := range comparisons {
		if !slices.ContainsFunc(v.Checks, func(made reconcile.Check) bool { return made.Name == c.Name }) {
			c.Detail = why
			left = append(left, c)
		}
	}
	return left
}

// judged counts the checks; a note is none.
func judged(v *reconcile.Verification) int {
	n := 0
	for _, c := range v.Checks {
		if !c.Informational {
			n++
		}
	}
	return n
}

// counted writes "1 check", "2 checks".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// writeGuarantees writes one line per guarantee, with the numbers of its checks.
func writeGuarantees(w io.Writer, v *reconcile.Verification, also map[int]string) error {
	t := newTable(w, "GUARANTEE", "CHECKS", "RESULT", "NUMBERS")
	for _, guarantee := range slices.Sorted(maps.Keys(guarantees)) {
		checks, broken := 0, 0
		var words []string
		for _, c := range v.Checks {
			if c.Guarantee != guarantee {
				continue
			}
			if !c.Informational {
				checks++
			}
			if !c.OK {
				broken++
				words = append(words, c.Name+": "+c.Detail)
			}
			if n := numbers(c.Numbers); n != "" && !c.Informational {
				words = append(words, n)
			}
		}
		if text := also[guarantee]; text != "" {
			words = append(words, text)
		}
		result := "holds"
		if broken > 0 {
			result = "VIOLATED"
		}
		count := "-"
		if checks > 0 {
			count = strconv.Itoa(checks)
		}
		t.row(fmt.Sprintf("%d %s", guarantee, guarantees[guarantee]), count, result, strings.Join(words, ", "))
	}
	return t.flush()
}

func numbers(n map[string]int64) string {
	return written(n, func(n int64) string { return strconv.FormatInt(n, 10) })
}

// unitsLeft writes the units of each item.
func unitsLeft(n map[string]int64) string { return written(n, unitsOrUnlimited) }

func written(n map[string]int64, number func(int64) string) string {
	texts := make([]string, 0, len(n))
	for _, name := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, name+"="+number(n[name]))
	}
	return strings.Join(texts, " ")
}
