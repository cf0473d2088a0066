// Package config turns flags, environment variables and an optional YAML file
// into one checked struct per service.
//
// A setting has one name. The flag --batch-max is also the environment variable
// DOORBUSTER_BATCH_MAX and the file key batch-max. A flag wins over the
// environment, the environment over the file, the file over the default. What
// nobody knows (a variable, a file key) is an error, because a setting that is
// silently ignored is found out in the middle of a sale.
//
// Everything about a setting stands in its struct tag: default, allowed range
// (min and max, which work for numbers and durations; minlen for strings),
// whether it is a secret, and its meaning. Validation, --help, --print-config
// and docs/configuration.md all read that tag.
package config

//go:generate go run ./configdoc ../../docs/configuration.md

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// envPrefix begins the name of every environment variable of ours.
const envPrefix = "DOORBUSTER"

// exitBadConfig is the exit status of a program whose configuration was refused.
const exitBadConfig = 2

// Program is the binary whose configuration is parsed. The zero values of
// Stdout, Stderr and Exit mean those of the process.
type Program struct {
	Name        string
	Description string
	Stdout      io.Writer
	Stderr      io.Writer
	// Exit ends the process after --help, --version and --print-config. A test
	// may give one that returns; Parse then returns as if the flag had not been given.
	Exit func(code int)
}

// source holds the flags that every binary has.
type source struct {
	Config      filePath         `name:"config" placeholder:"FILE" help:"YAML file with settings. Its keys are the names of the flags."`
	PrintConfig bool             `name:"print-config" env:"-" help:"Print the effective configuration, secrets hidden, and exit."`
	Version     kong.VersionFlag `name:"version" env:"-" help:"Print the version and exit."`
}

// Parse fills grammar, a pointer to a service struct of this package or to a kong
// command line that embeds them, from args (without the program's name), the
// environment and the file named by --config. The error names the setting, what
// was wrong with it and where the value came from; it never holds a secret.
func Parse(program Program, grammar any, args []string) (*kong.Context, error) {
	var common source
	var settings file
	parser, err := newParser(program, grammar, kong.Embed(&common), kong.Bind(&settings))
	if err != nil {
		return nil, err
	}
	ctx, err := parser.Parse(args)
	// A misspelt variable is the likelier cause of whatever else is wrong.
	if unknown := checkEnvironment(parser.Model, os.Environ()); unknown != nil {
		return nil, unknown
	}
	if err != nil {
		if parseErr, ok := errors.AsType[*kong.ParseError](err); ok {
			return nil, parseErr.Unwrap()
		}
		return nil, err
	}
	if err := checkLimits(ctx, &settings); err != nil {
		return nil, err
	}
	if common.PrintConfig {
		if err := printConfig(parser.Stdout, ctx, &settings); err != nil {
			return nil, fmt.Errorf("print configuration: %w", err)
		}
		parser.Exit(0)
	}
	return ctx, nil
}

// MustParse is Parse for a main function: it reads os.Args, and on an error
// prints it and exits with status 2.
func MustParse(name, description string, grammar any) *kong.Context {
	ctx, err := Parse(Program{Name: name, Description: description}, grammar, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(exitBadConfig)
	}
	return ctx
}

func newParser(program Program, grammar any, more ...kong.Option) (*kong.Kong, error) {
	options := append([]kong.Option{
		kong.Name(program.Name),
		kong.Description(program.Description),
		kong.DefaultEnvars(envPrefix),
		kong.Vars{"version": Version()},
		kong.PostBuild(describeLimits),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
	}, more...)
	if program.Stdout != nil && program.Stderr != nil {
		options = append(options, kong.Writers(program.Stdout, program.Stderr))
	}
	if program.Exit != nil {
		options = append(options, kong.Exit(program.Exit))
	}
	parser, err := kong.New(grammar, options...)
	if err != nil {
		return nil, fmt.Errorf("build command line of %s: %w", program.Name, err)
	}
	return parser, nil
}

// allFlags returns the flags of a command line and all its commands.
func allFlags(node *kong.Node) []*kong.Flag {
	flags := append([]*kong.Flag(nil), node.Flags...)
	for _, child := range node.Children {
		flags = append(flags, allFlags(child)...)
	}
	return flags
}

// isSetting tells the settings from the flags that only make the program print
// something and end.
func isSetting(flag *kong.Flag) bool {
	switch flag.Name {
	case "help", "version", "print-config", "config":
		return false
	default:
		return true
	}
}
