package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
)

// reconcileCommand has a sale's state in Redis compared and repaired.
type reconcileCommand struct {
	Sale     string       `arg:"" help:"Id of the sale."`
	Force    bool         `name:"force" env:"-" help:"Rebuild the state even when nothing differs. Selling stops for as long as that takes."`
	API      apiFlags     `embed:"" group:"API"`
	Backends backendFlags `embed:""`
	JSON     bool         `name:"json" env:"-" help:"Print the whole report as JSON."`
}

// reasonCommand is why a reconciler goes over a sale when nobody forces it.
const reasonCommand = "operator"

// Run prints what was found and done.
func (c *reconcileCommand) Run(ctx context.Context, parsed *kong.Context, term terminal) error {
	report, err := c.reconcile(ctx, parsed, term)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(term.out, report)
	}
	return writeReconciliation(term.out, &report)
}

func (c *reconcileCommand) reconcile(ctx context.Context, parsed *kong.Context, term terminal) (reconcile.Report, error) {
	reason, query := reasonCommand, url.Values{}
	if c.Force {
		reason, query = reconcile.ReasonForced, url.Values{"force": {"true"}}
	}
	if c.Backends.chosen(parsed) {
		log := slog.New(slog.NewTextHandler(term.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
		r, done, err := c.Backends.reconciler(ctx, log)
		if err != nil {
			return reconcile.Report{}, fmt.Errorf("nothing was changed: %w", err)
		}
		defer done()
		fmt.Fprintf(term.err, "reconciling directly: %s\n", c.Backends.told())
		return r.Reconcile(ctx, c.Sale, reason)
	}
	a, err := c.API.client()
	if err != nil {
		return reconcile.Report{}, err
	}
	defer a.close()
	fmt.Fprintf(term.err, "reconciling by URL %s\n", a.base)
	report, err := get[reconcile.Report](ctx, a, call{method: http.MethodPost, path: adminSales(c.Sale, "reconcile"), query: query})
	if err == nil && report.SaleID != c.Sale {
		err = fmt.Errorf("%s answered what is no report on sale %s", a.base, c.Sale)
	}
	return report, err
}

// writeReconciliation writes a report for a person.
func writeReconciliation(w io.Writer, r *reconcile.Report) error {
	found := "loaded"
	if !r.Found.Loaded {
		found = "not loaded: " + r.Found.Why
	}
	fmt.Fprintf(w, "sale %s: %s in %s (found %s)\n", r.SaleID, r.Result, load.Short(time.Duration(r.Duration)), found)
	if r.Result == reconcile.ResultRestored {
		fmt.Fprintf(w, "generation %d: %d grants (%d not in the ledger yet) of %d buyers; remaining %s\n",
			r.Generation, r.Restored.Grants, r.Restored.FromStream, r.Restored.Buyers, unitsLeft(r.Restored.Remaining))
		writeDifferences(w, r.Differences)
	}
	if r.Violations.Count > 0 {
		fmt.Fprintf(w, "%d VIOLATIONS: %v\n", r.Violations.Count, r.Violations.Details)
	}
	fmt.Fprintln(w)
	t := newTable(w, "STEP", "TOOK")
	for _, s := range r.Steps {
		t.row(s.Step, load.Short(time.Duration(s.Duration)))
	}
	return t.flush()
}

func writeDifferences(w io.Writer, d *reconcile.Differences) {
	if d == nil {
		return
	}
	write := func(what string, c *reconcile.CountDifference) {
		if c != nil {
			fmt.Fprintf(w, "differed: %s %d, is %d\n", what, c.Before, c.After)
		}
	}
	for i := range d.Remaining {
		write("remaining "+d.Remaining[i].SKU, &d.Remaining[i])
	}
	write("buyers", d.Buyers)
	write("grants", d.Grants)
	write("givebacks", d.Givebacks)
	if len(d.VoidedOrders) > 0 {
		fmt.Fprintf(w, "void grants, never told \"won\": %v\n", d.VoidedOrders)
	}
}
