// Command doorbuster is the command line: a whole Doorbuster in one process for
// development, a demonstration, a crowd, and the tools of an operator.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/daemon"
	"github.com/doorbuster/doorbuster/pkg/servers"
)

// commandLine is the grammar; each command has its own file.
type commandLine struct {
	Dev         devCommand         `cmd:"" help:"Run every role in one process, with embedded backends where none are given. For development only."`
	Demo        demoCommand        `cmd:"" help:"Sell 1,000 units to a crowd of 20,000, lose Redis in the middle, and check the books."`
	Sale        saleCommand        `cmd:"" help:"Create and run sales over the admin API."`
	Order       orderCommand       `cmd:"" help:"Show, pay, cancel and return orders over the admin API."`
	Quota       quotaCommand       `cmd:"" help:"Make, show, deduct from and return to standing limits without a sale."`
	FlowControl flowControlCommand `cmd:"" name:"flow-control" help:"Show or change how many grabs may come, over the admin API."`
	Load        loadCommand        `cmd:"" help:"Send a crowd at a sale, to the grab service, and tell what it was answered."`
	Verify      verifyCommand      `cmd:"" help:"Check every guarantee for a sale. The exit status is 1 when one is violated, 2 when they could not be checked."`
	Reconcile   reconcileCommand   `cmd:"" help:"Have a sale's state in Redis compared with the ledger and the stream, and repaired."`
}

func main() {
	ctx, stop := daemon.SignalContext()
	code := run(ctx, os.Args[1:], terminal{os.Stdout, os.Stderr})
	stop()
	servers.CleanUp() // of a demonstration on real servers
	os.Exit(code)
}

// terminal is where a command writes: its results to out, everything else to err.
type terminal struct {
	out, err io.Writer
}

// run runs one command and returns the process's exit status.
func run(ctx context.Context, args []string, term terminal) int {
	daemon.QuietRedis() // what its lines mean is told by the command's error
	var grammar commandLine
	parsed, err := config.Parse(config.Program{
		Name: "doorbuster", Description: "A flash-sale engine: sells a limited stock to a crowd.\n\n" + exitHelp,
		Stdout: term.out, Stderr: term.err,
	}, &grammar, bareNegative(args))
	if err != nil {
		fmt.Fprintf(term.err, "doorbuster: %v\n", err)
		return exitFailed
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.Bind(parsed)
	return report(parsed.Run(term), parsed, term)
}

func report(err error, parsed *kong.Context, term terminal) int {
	if err != nil && err.Error() != "" {
		fmt.Fprintf(term.err, "doorbuster %s: %v\n", parsed.Selected().Path(), err)
	}
	return exitStatus(err)
}
