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

	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
)

// verifyCommand checks every guarantee for a sale.
type verifyCommand struct {
	Sale     string       `arg:"" help:"Id of the sale."`
	API      apiFlags     `embed:"" group:"API"`
	Backends backendFlags `embed:""`
	JSON     bool         `name:"json" env:"-" help:"Print the whole report as JSON."`
}

// Run prints a line per check. It fails when a guarantee is broken.
func (c *verifyCommand) Run(ctx context.Context, term terminal) error {
	v, err := c.verify(ctx, term)
	if err != nil {
		return err
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
		return errQuiet
	}
	return nil
}

func (c *verifyCommand) verify(ctx context.Context, term terminal) (reconcile.Verification, error) {
	if c.Backends.given() {
		log := slog.New(slog.NewTextHandler(term.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
		r, done, err := c.Backends.reconciler(ctx, log)
		if err != nil {
			return reconcile.Verification{}, err
		}
		defer done()
		return r.Verify(ctx, c.Sale)
	}
	a, err := c.API.client()
	if err != nil {
		return reconcile.Verification{}, err
	}
	defer a.close()
	return a.verify(ctx, c.Sale)
}

func (a *api) verify(ctx context.Context, saleID string) (reconcile.Verification, error) {
	return get[reconcile.Verification](ctx, a, call{method: http.MethodGet, path: adminSales(saleID, "verify")})
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
	violated := 0
	for _, c := range checks {
		result := "holds"
		switch {
		case !c.OK:
			result = "VIOLATED"
			violated++
		case c.Informational:
			result = "note"
		}
		t.row(fmt.Sprintf("%d %s", c.Guarantee, guarantees[c.Guarantee]), c.Name, result, strings.TrimSpace(numbers(c.Numbers)+" "+c.Detail))
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nsale %s: %d checks, %d violated, in %s\n", v.SaleID, len(checks), violated, load.Short(time.Duration(v.Duration)))
	if !v.AtRest {
		fmt.Fprintf(w, "not at rest, so that Redis and the ledger could not be compared exactly: %s\n", strings.Join(v.Moving, "; "))
	}
	return nil
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
	texts := make([]string, 0, len(n))
	for _, name := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, fmt.Sprintf("%s=%d", name, n[name]))
	}
	return strings.Join(texts, " ")
}
