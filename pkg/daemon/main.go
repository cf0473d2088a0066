package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/doorbuster/doorbuster/pkg/config"
)

// Main runs one service process to its end: it parses the configuration into
// cfg, opens the daemon, has wire make its role, and plays it until a signal.
// settings picks the frame's own part of the parsed configuration.
func Main[C any](name, description string, cfg *C, settings func(*C) (config.HTTP, config.Log),
	wire func(ctx context.Context, d *Daemon, cfg *C) (Role, error),
) {
	config.MustParse(name, description, cfg)
	http, log := settings(cfg)
	err := runOne(name, http, log, func(ctx context.Context, d *Daemon) (Role, error) { return wire(ctx, d, cfg) })
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func runOne(name string, http config.HTTP, log config.Log, wire func(context.Context, *Daemon) (Role, error)) error {
	ctx, stop := SignalContext()
	defer stop()
	d, err := New(name, http, log)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Serve(ctx, func(ctx context.Context) ([]Role, error) {
		role, err := wire(ctx, d)
		return []Role{role}, err
	})
}
