package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Service is one binary or command and its settings.
type Service struct {
	Name    string // as on the command line
	Meaning string
	flags   []*kong.Flag
}

// Services returns every service that this package has a struct for, and the
// command line, in the order of the documentation.
func Services() []Service {
	services := []Service{
		{Name: "grab", Meaning: "Grab service: answers the crowd."},
		{Name: "order", Meaning: "Order service: turns grants into orders, and answers their owners."},
		{Name: "reconciler", Meaning: "Reconciler: restores, audits and relays."},
		{Name: "admin", Meaning: "Admin service: the control plane."},
		{Name: "doorbuster dev", Meaning: "Every role in one process, for development only."},
		{Name: "doorbuster", Meaning: "The command line: what its other commands share. Each takes those that it needs, and " +
			"`doorbuster COMMAND --help` tells all of its flags. The backends are for `verify` and `reconcile` without the admin service."},
	}
	for i, grammar := range []any{new(Grab), new(Order), new(Reconciler), new(Admin), new(Dev), new(CommandLine)} {
		parser, err := newParser(Program{Name: services[i].Name}, grammar, kong.Embed(new(source)))
		if err != nil {
			panic(fmt.Sprintf("config: struct tags of %T: %v", grammar, err)) // only a change of this package can cause it
		}
		services[i].flags = allFlags(parser.Model.Node)
	}
	return services
}

const documentHead = `# Configuration

<!-- Generated from the structs in pkg/config by go generate ./pkg/config. Do not edit. -->

Every setting can be given as a flag, as an environment variable, or as a key in the YAML file
that ` + "`--config FILE`" + ` (or ` + "`DOORBUSTER_CONFIG`" + `) names. A flag wins over the environment, the environment over
the file, the file over the default.

- An unknown ` + "`DOORBUSTER_`" + ` variable is an error. Variables of another Doorbuster service and of the
  command line are accepted, so that all may share one set; so are those that Kubernetes makes up for Services.
- An unknown key in the file is an error. A list may stand where a flag takes comma-separated values.
- Durations are written like ` + "`250ms`, `5s`, `1m30s`" + `.
- ` + "`--print-config`" + ` shows what a program would run with and where each value came from, with secrets hidden.
`

// Document writes docs/configuration.md.
func Document(w io.Writer) error {
	var page strings.Builder
	page.WriteString(documentHead)
	for _, service := range Services() {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n", service.Name, service.Meaning)
		page.WriteString("| flag | environment | file key | default | range | meaning |\n")
		page.WriteString("| --- | --- | --- | --- | --- | --- |\n")
		for _, flag := range service.flags {
			if !isSetting(flag) {
				continue
			}
			row, err := documentRow(flag)
			if err != nil {
				return err
			}
			page.WriteString(row)
		}
	}
	_, err := io.WriteString(w, page.String())
	return err
}

func documentRow(flag *kong.Flag) (string, error) {
	l, err := limitsOf(flag)
	if err != nil {
		return "", err
	}
	allowed := l.text
	if flag.Enum != "" {
		allowed = strings.Join(flag.EnumSlice(), ", ")
	}
	preset := ""
	switch {
	case flag.Required:
		preset = "required"
	case flag.Default != "":
		preset = "`" + flag.Default + "`"
	case flag.IsBool():
		preset = "`false`"
	}
	meaning := strings.TrimSuffix(flag.Help, " Allowed: "+l.text+".")
	cells := []string{"`--" + flag.Name + "`", "`" + flag.Envs[0] + "`", "`" + flag.Name + "`", preset, allowed, meaning}
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n", nil
}
