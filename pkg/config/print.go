package config

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// hidden stands for a secret in everything that is printed.
const hidden = "***"

// Where a value came from. A variable and a file line are named.
const (
	originFlag    = "flag"
	originDefault = "default"
)

// printConfig writes the settings of the chosen command as a YAML file that
// --config accepts, except for the secrets, with the origin of each value.
func printConfig(w io.Writer, ctx *kong.Context, settings *file) error {
	for _, flag := range ctx.Flags() {
		if !isSetting(flag) {
			continue
		}
		// A list stays on its line.
		value, err := yaml.MarshalWithOptions(shown(flag), yaml.Flow(flag.Target.Kind() == reflect.Slice))
		if err != nil {
			return fmt.Errorf("--%s: %w", flag.Name, err)
		}
		line := flag.Name + ": " + strings.TrimSpace(string(value))
		if _, err := fmt.Fprintf(w, "%-44s # %s\n", line, originOf(ctx, flag, settings)); err != nil {
			return err
		}
	}
	return nil
}

// originOf tells where the value of a flag came from.
func originOf(ctx *kong.Context, flag *kong.Flag, settings *file) string {
	for _, step := range ctx.Path {
		if step.Flag == flag && !step.Resolved {
			return originFlag
		}
	}
	if name, ok := variableOf(flag); ok {
		return name
	}
	if entry, ok := settings.entries[flag.Name]; ok {
		return fmt.Sprintf("%s:%d", settings.path, entry.line)
	}
	return originDefault
}

// shown is the value as it may be printed.
func shown(flag *kong.Flag) any {
	if flag.Target.Kind() == reflect.String {
		text := flag.Target.String()
		switch {
		case text == "":
			return ""
		case flag.Tag.Get("secret") == "url":
			return hideInURLs(text)
		case flag.Tag.Get("secret") == "dsn":
			return hideInDSN(text)
		case isSecret(flag):
			return hidden
		}
		return text
	}
	if isSecret(flag) && flag.Target.Kind() == reflect.Slice {
		return slices.Repeat([]string{hidden}, flag.Target.Len())
	}
	if d, ok := reflect.TypeAssert[time.Duration](flag.Target); ok {
		return d.String()
	}
	return flag.Target.Interface()
}

// isSecret reports whether a value must not be shown as it is. The tag secret is
// empty when all of the value is secret, and "url" or "dsn" when a part of it is.
func isSecret(flag *kong.Flag) bool { return flag.Tag.Has("secret") }

// nextURL finds where another URL begins in a comma-separated list of them. A
// comma alone does not tell: it may stand in a password or between two hosts.
var nextURL = regexp.MustCompile(`,\s*[a-z+]+://`)

// hideInURLs hides user and password, and the values of query parameters, in one
// URL or in a list of them joined by commas.
func hideInURLs(text string) string {
	var shown strings.Builder
	for {
		next := nextURL.FindStringIndex(text)
		if next == nil {
			return shown.String() + hideInURL(text)
		}
		shown.WriteString(hideInURL(text[:next[0]]) + ",")
		text = strings.TrimSpace(text[next[0]+1:])
	}
}

// hideInURL takes everything up to the last @ for credentials: too much may be
// hidden, but a password that was not percent-encoded is never shown in part.
func hideInURL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	} else {
		scheme += "://"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = hidden + rest[at:]
	}
	return scheme + hideQuery(rest)
}

// hideInDSN hides user and password, and the parameters, of
// user:password@net(address)/database?parameters. Like the driver, it takes the
// last slash for the one before the database.
func hideInDSN(text string) string {
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return hidden
	}
	server, database := text[:slash], text[slash:]
	if at := strings.LastIndexByte(server, '@'); at >= 0 {
		server = hidden + server[at:]
	}
	return server + hideQuery(database)
}

func hideQuery(text string) string {
	before, query, _ := strings.Cut(text, "?")
	if query == "" {
		return before
	}
	return before + "?" + hidden
}
