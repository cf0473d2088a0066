package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/doorbuster/doorbuster/pkg/config"
)

// Main runs one service process to its end: it parses the configuration into
// cfg, opens the daemon, has wire make its role, and plays it until a signal.
// frame picks the frame's own part of the parsed configuration.
func Main[C any](name, description string, cfg *C, frame func(*C) Frame,
	wire func(ctx context.Context, d *Daemon, cfg *C) (Role, error),
) {
	config.MustParse(name, description, cfg)
	err := runOne(name, frame(cfg), func(ctx context.Context, d *Daemon) (Role, error) { return wire(ctx, d, cfg) })
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func runOne(name string, frame Frame, wire func(context.Context, *Daemon) (Role, error)) error {
	ctx, stop := SignalContext()
	defer stop()
	d, err := New(name, frame)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Serve(ctx, func(ctx context.Context) ([]Role, error) {
		role, err := wire(ctx, d)
		return []Role{role}, err
	})
}
