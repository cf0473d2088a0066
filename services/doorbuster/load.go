package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// loadCommand sends a crowd at a sale.
type loadCommand struct {
	Sale           string        `arg:"" help:"Id of the sale."`
	AllowRemote    bool          `name:"allow-remote" env:"-" help:"Send the crowd to another machine. It must be one of your own."`
	Users          int           `name:"users" env:"-" default:"1000" help:"Different users."`
	Grabs          int           `name:"grabs" env:"-" default:"0" help:"Grabs, shared out among the users. 0 is one for each."`
	Rate           float64       `name:"rate" env:"-" default:"0" help:"Grabs begun per second, whether earlier ones are answered or not. 0 is all at once."`
	Ramp           bool          `name:"ramp" env:"-" help:"Let the crowd build up: the rate grows evenly from nothing to twice --rate."`
	Items          []string      `name:"item" env:"-" placeholder:"SKU:QUANTITY" help:"What each grab asks for. Left out: one unit of the sale's only item."`
	Retries        int           `name:"retries" env:"-" default:"20" help:"How often an undecided grab is sent again with its key. -1 is never."`
	Duplicates     float64       `name:"duplicates" env:"-" default:"0.05" help:"Share of grabs that are sent twice at once with the same key, 0 to 1."`
	Connections    int           `name:"connections" env:"-" default:"512" help:"Most requests in flight."`
	RequestTimeout time.Duration `name:"request-timeout" env:"-" default:"10s" help:"Time for one request."`
	Timeout        time.Duration `name:"timeout" env:"-" default:"2m" help:"Time for everything."`
	UserPrefix     string        `name:"user-prefix" env:"-" default:"user-" help:"Beginning of the users' names."`
	Seed           uint64        `name:"seed" env:"-" default:"0" help:"Makes keys and duplicates repeatable. 0 takes the time."`
	JSON           string        `name:"json" env:"-" placeholder:"FILE" help:"Write the report to this file as JSON."`

	Grab  config.GrabURL  `embed:"" group:"API"`
	Admin config.AdminURL `embed:"" group:"API"`
}

// Run sends the crowd. The answer is no when an answer contradicts another one.
func (c *loadCommand) Run(ctx context.Context, parsed *kong.Context, term terminal) error {
	lines, err := parseLines(c.Items)
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	at := grabAddress(parsed, c.Grab, c.Admin)
	live := newLive(term.err)
	cfg := load.Config{
		URL: at.url, AllowRemote: c.AllowRemote, SaleID: c.Sale, Lines: lines, Users: c.Users, Grabs: c.Grabs,
		Rate: c.Rate, Ramp: c.Ramp, Retries: c.Retries, Duplicates: c.Duplicates, Connections: c.Connections,
		RequestTimeout: c.RequestTimeout, Timeout: c.Timeout, UserPrefix: c.UserPrefix, Seed: c.Seed,
		Progress: func(p load.Progress) { live.show(progressText(p)) },
	}
	if err := load.Look(ctx, cfg); err != nil {
		return at.explain(err)
	}
	report, err := load.Run(ctx, cfg)
	live.end()
	if err != nil {
		return err
	}
	if err := report.WriteText(term.out); err != nil {
		return err
	}
	if c.JSON != "" {
		if err := writeReport(c.JSON, &report); err != nil {
			return err
		}
	}
	if report.Contradictions > 0 {
		return no(fmt.Sprintf("%d keys were answered with contradicting orders: %s", report.Contradictions, strings.Join(report.Examples, "; ")))
	}
	if invalid := report.Outcomes[load.ClassInvalid]; invalid > 0 {
		return fmt.Errorf("%d grabs were not taken: %s", invalid, report.Problem)
	}
	if report.Outcomes[load.ClassFailed]+report.Undecided == int64(report.Grabs) {
		return fmt.Errorf("nothing was decided: %s", report.Problem)
	}
	if report.Undecided > 0 && ctx.Err() == nil {
		return fmt.Errorf("%d grabs were not answered within %s", report.Undecided, c.Timeout)
	}
	return nil
}

func parseLines(items []string) ([]sale.Line, error) {
	var lines []sale.Line
	for _, text := range items {
		sku, quantity, found := strings.Cut(text, ":")
		n, err := strconv.ParseInt(quantity, 10, 64)
		if !found || err != nil || n < 1 {
			return nil, fmt.Errorf("--item %q: must be SKU:QUANTITY, such as LAMP:1", text)
		}
		lines = append(lines, sale.Line{SKU: sku, Quantity: n})
	}
	return lines, nil
}

func progressText(p load.Progress) string {
	return fmt.Sprintf("%s %5.1fs  decided %d/%d  won %d  requests %d",
		bar(p.Decided, int64(p.Grabs)), p.Elapsed.Seconds(), p.Decided, p.Grabs, p.Won, p.Requests)
}

func writeReport(path string, report *load.Report) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	encoder := json.NewEncoder(file)
	encoder.SetIndent("", "  ")
	if err := errors.Join(encoder.Encode(report), file.Close()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
