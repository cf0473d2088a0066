package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
)

// devCommand runs every role in one process.
type devCommand struct {
	config.Dev
}

// Run serves until a signal. When it is ready it prints one line with its
// address and the admin key; everything else goes to the log.
func (c *devCommand) Run(ctx context.Context, term terminal) error {
	d, err := daemon.New("dev", daemon.Frame{HTTP: c.HTTP, Log: c.Log})
	if err != nil {
		return err
	}
	defer d.Close()
	shop, err := newInstance(ctx, d, c.Dev)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it waited for a server
		}
		return err
	}
	return shop.run(ctx, func(address string) { fmt.Fprintln(term.out, shop.announcement(address)) })
}

// announcement is the line that says where everything is.
func (i *instance) announcement(address string) string {
	note := "development only"
	if len(i.embedded) > 0 {
		note += ": embedded " + strings.Join(i.embedded, ", ")
	}
	return fmt.Sprintf("doorbuster dev ready address=%s admin_key=%s (%s)", address, i.key, note)
}

// minAdminKey is the least length of an admin key, as in production.
const minAdminKey = 16

func adminKey(given string) (string, error) {
	switch {
	case given == "":
		return rand.Text(), nil
	case len(given) < minAdminKey:
		return "", errors.New("--admin-key: must be at least 16 characters")
	}
	return given, nil
}
