package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// flowControlCommand holds the commands for what every grab process obeys.
type flowControlCommand struct {
	Get flowControlGet `cmd:"" help:"Show how many grabs may come."`
	Set flowControlSet `cmd:"" help:"Change how many grabs may come, in every grab process at once. What is left out stays as it is."`

	API  apiFlags `embed:"" group:"API"`
	JSON bool     `name:"json" env:"-" help:"Print what the API answers, as JSON."`
}

type flowControlGet struct{}

type flowControlSet struct {
	PerUser     string `name:"per-user" env:"-" placeholder:"RATE:BURST" help:"Grabs per second of one user in one process, and how many of them at once, such as 2:5; off, or config for what each process is configured with."`
	PerIP       string `name:"per-ip" env:"-" placeholder:"RATE:BURST" help:"The same of one client address."`
	InFlightMax string `name:"in-flight-max" env:"-" placeholder:"N" help:"Grabs under way in one process, or config."`
}

// Words that stand for a setting.
const (
	settingOff    = "off"
	settingConfig = "config"
)

// body is the body of PUT /admin/v1/flow-control.
func (c *flowControlSet) body() (map[string]any, error) {
	body := map[string]any{}
	for name, text := range map[string]string{"per_user": c.PerUser, "per_ip": c.PerIP} {
		if text == "" {
			continue
		}
		rate, err := parseRate(text)
		if err != nil {
			return nil, fmt.Errorf("--%s %s: %w", strings.ReplaceAll(name, "_", "-"), text, err)
		}
		body[name] = rate
	}
	switch text := c.InFlightMax; text {
	case "":
	case settingConfig:
		body["in_flight_max"] = nil
	default:
		most, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("--in-flight-max %s: must be a number, or config", text)
		}
		body["in_flight_max"] = most
	}
	if len(body) == 0 {
		return nil, errors.New("give at least one of --per-user, --per-ip and --in-flight-max")
	}
	return body, nil
}

var (
	errRate     = errors.New("must be RATE:BURST such as 2:5 or 0.5:3, off, or config")
	errRateZero = errors.New("a rate of 0 would refuse nobody: use off")
)

// parseRate reads a rate; nil is what each process is configured with.
func parseRate(text string) (any, error) {
	switch text {
	case settingOff:
		return map[string]any{"rate": 0}, nil
	case settingConfig:
		return nil, nil
	}
	before, after, found := strings.Cut(text, ":")
	rate, err := strconv.ParseFloat(before, 64)
	if err != nil || !found {
		return nil, errRate
	}
	if rate == 0 {
		return nil, errRateZero
	}
	burst, err := strconv.ParseInt(after, 10, 64)
	if err != nil {
		return nil, errRate
	}
	return map[string]any{"rate": rate, "burst": burst}, nil
}

var flowControlPath = []string{"admin", "v1", "flow-control"}

// Run shows the flow control.
func (*flowControlGet) Run(ctx context.Context, all *flowControlCommand, term terminal) error {
	return all.do(ctx, term, call{method: http.MethodGet, path: flowControlPath})
}

// Run changes it, and shows it.
func (c *flowControlSet) Run(ctx context.Context, all *flowControlCommand, term terminal) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	return all.do(ctx, term, call{method: http.MethodPut, path: flowControlPath, body: body})
}

// flowControlView is the flow control as the admin API shows it.
type flowControlView struct {
	PerUser     *rateView `json:"per_user"`
	PerIP       *rateView `json:"per_ip"`
	InFlightMax *int64    `json:"in_flight_max"`
	Revision    uint64    `json:"revision"`
}

type rateView struct {
	Rate  float64 `json:"rate"`
	Burst int64   `json:"burst"`
}

func (r *rateView) String() string {
	switch {
	case r == nil:
		return asConfigured
	case r.Rate == 0:
		return settingOff
	default:
		return fmt.Sprintf("%g per second, %d at once", r.Rate, r.Burst)
	}
}

const asConfigured = "as each process is configured"

func (c *flowControlCommand) do(ctx context.Context, term terminal, what call) error {
	return ask(ctx, &c.API, term, c.JSON, what, func(v flowControlView) error { return v.show(term) })
}

// show prints what is in force.
func (v *flowControlView) show(term terminal) error {
	inFlight := asConfigured
	if v.InFlightMax != nil {
		inFlight = strconv.FormatInt(*v.InFlightMax, 10)
	}
	t := newTable(term.out, "GRABS", "IN ONE PROCESS")
	t.row("per user", v.PerUser)
	t.row("per address", v.PerIP)
	t.row("in flight", inFlight)
	t.row("revision", v.Revision)
	return t.flush()
}
