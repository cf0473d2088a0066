package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
)

// demoCommand shows a sale from its opening to verified books.
type demoCommand struct {
	Real  bool    `name:"real" env:"-" help:"Run a real redis-server, MariaDB and nats-server, and kill the redis-server, instead of embedded ones."`
	Units int64   `name:"units" env:"-" default:"1000" help:"Stock of the sale."`
	Users int     `name:"users" env:"-" default:"20000" help:"Users who storm it."`
	Rate  float64 `name:"rate" env:"-" default:"1500" help:"Grabs begun per second, on average: the crowd builds up."`
}

// Validate refuses a crowd that could not sell the sale out.
func (c *demoCommand) Validate() error {
	if c.Units < 10 || int64(c.Users) < 2*c.Units || c.Users > load.MaxGrabs || c.Rate < 10 {
		return errors.New("--units must be at least 10, --users at least twice as many, --rate at least 10")
	}
	return nil
}

// demoTimeout bounds a whole demonstration.
const demoTimeout = 5 * time.Minute

// Run fails unless every promise holds.
func (c *demoCommand) Run(ctx context.Context, term terminal) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	folder, err := os.MkdirTemp("", "doorbuster-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	logPath := filepath.Join(folder, "log.txt")
	defer func() {
		if err == nil || errors.Is(err, context.Canceled) {
			err = errors.Join(err, os.RemoveAll(folder))
		} else {
			fmt.Fprintf(term.err, "the log is in %s\n", logPath)
		}
	}()
	log, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	d := &demo{demoCommand: *c, term: term, folder: folder}
	return errors.Join(d.run(ctx, log), log.Close())
}

// demo is one demonstration.
type demo struct {
	demoCommand

	term   terminal
	folder string
	stage  stage
	shop   *instance
	api    *api
}

// sayf tells what happens, on a line of its own.
func (d *demo) sayf(format string, args ...any) { fmt.Fprintf(d.term.out, format+"\n", args...) }

func (d *demo) run(ctx context.Context, log io.Writer) error {
	d.sayf("Doorbuster: %d units, %d users, and Redis loses everything in the middle of the sale.\n", d.Units, d.Users)
	var err error
	if d.stage, err = newStage(d.Real, d.sayf); err != nil {
		return err
	}
	defer d.stage.close()
	cfg, err := d.config()
	if err != nil {
		return err
	}
	frame, err := newFrame(cfg, log)
	if err != nil {
		return err
	}
	defer frame.Close()
	if d.shop, err = newInstance(ctx, frame, cfg); err != nil {
		return err
	}
	d.stage.opened(d.shop)

	serving, stop := context.WithCancel(ctx)
	defer stop()
	ready, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- d.shop.run(serving, func(address string) { ready <- address }) }()
	select {
	case address := <-ready:
		d.api = newAPI(adminAddress(config.AdminURL{URL: address}), d.shop.key)
	case err := <-served:
		return errors.Join(err, ctx.Err())
	}
	defer d.api.close()
	held := d.play(ctx)
	stop()
	return errors.Join(held, <-served)
}

// newFrame is the daemon of the demonstration: its log goes to a file.
func newFrame(cfg config.Dev, log io.Writer) (*daemon.Daemon, error) {
	logger, err := telemetry.NewLogger(log, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return nil, err
	}
	slog.SetDefault(logger)
	return &daemon.Daemon{
		Name: "demo", HTTP: cfg.HTTP, Log: logger,
		Registry: telemetry.NewRegistry(), Health: telemetry.NewHealth(),
	}, nil
}

// config is the configuration of dev with its defaults. The environment does not
// count: it may name the backends of a shop that must not be stormed, nor lose its Redis.
func (d *demo) config() (config.Dev, error) {
	var cfg config.Dev
	parser, err := kong.New(&cfg, kong.Name("demo"))
	if err != nil {
		return cfg, fmt.Errorf("configure the demo: %w", err)
	}
	args := append([]string{"--listen=127.0.0.1:0", "--data=" + filepath.Join(d.folder, "data")}, d.stage.arguments()...)
	if _, err := parser.Parse(args); err != nil {
		return cfg, fmt.Errorf("configure the demo: %w", err)
	}
	return cfg, nil
}

// demoSale is the id of the sale.
const demoSale = "demo"

// play opens the sale, sends the crowd, breaks Redis, and checks the books.
func (d *demo) play(ctx context.Context) error {
	opening := saleCreate{
		ID: demoSale, Name: "Doorbuster demo", Items: []string{fmt.Sprintf("TV:%d:19900", d.Units)},
		Starts: "now", Ends: "+1h", PaymentWindow: "20m", PerUserLimit: 1, Timezone: "UTC",
	}
	draft, err := opening.draft(time.Now())
	if err != nil {
		return err
	}
	if err := d.api.open(ctx, draft); err != nil {
		return fmt.Errorf("open the sale: %w", err)
	}
	d.sayf("Sale open at %s. The crowd builds up to %.0f grabs a second, with retries and duplicates.\n", d.api.base, 2*d.Rate)
	storm, err := d.storm(ctx)
	if err != nil {
		return err
	}
	return d.judge(ctx, storm)
}
