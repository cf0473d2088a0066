package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
)

// serviceSettings are the configurations of the four services.
func serviceSettings() map[string]any {
	return map[string]any{
		"grab": new(config.Grab), "order": new(config.Order), "reconciler": new(config.Reconciler), "admin": new(config.Admin),
	}
}

func readRoot(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	must(t, err)
	return string(text)
}

// unset takes our variables away that the test's own environment has.
func unset(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "DOORBUSTER_") {
			t.Setenv(name, value) // so that it comes back
			must(t, os.Unsetenv(name))
		}
	}
}

var exported = regexp.MustCompile(`(?m)^export (DOORBUSTER_\w+)=('[^']*'|\$\([^)]*\)|\S+)`)

// readmeVariables are the variables that README.md exports before it starts the four
// services; a command in place of a value stands for a long one.
func readmeVariables(t *testing.T) map[string]string {
	t.Helper()
	_, section, _ := strings.Cut(readRoot(t, "README.md"), "\nThe four services:\n")
	block, _, found := strings.Cut(section, "bin/admin & ")
	if !found {
		t.Fatal("README.md does not start the four services any more")
	}
	variables := map[string]string{}
	for _, match := range exported.FindAllStringSubmatch(block, -1) {
		variables[match[1]] = strings.Trim(match[2], "'")
		if strings.HasPrefix(match[2], "$(") {
			variables[match[1]] = strings.Repeat("k", 48)
		}
	}
	if len(variables) != strings.Count(block, "export ") {
		t.Fatalf("read %v from:\n%s", variables, block)
	}
	return variables
}

func TestEveryServiceStartsWithWhatTheReadmeExports(t *testing.T) {
	unset(t)
	for name, value := range readmeVariables(t) {
		t.Setenv(name, value)
	}
	for name, settings := range serviceSettings() {
		if _, err := config.Parse(config.Program{Name: name}, settings, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := config.Parse(config.Program{Name: "doorbuster"}, new(commandLine), []string{"verify", "lamp"}); err != nil {
		t.Errorf("doorbuster: %v", err)
	}
}

var variable = regexp.MustCompile(`\bDOORBUSTER_[A-Z_]*[A-Z]\b`)

// setSomewhere are the variables that README.md, compose.yaml and the files of deploy name.
func setSomewhere(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "compose.yaml"}
	deployed, err := os.ReadDir("../../deploy")
	must(t, err)
	for _, file := range deployed {
		if !strings.HasSuffix(file.Name(), ".go") {
			files = append(files, "deploy/"+file.Name())
		}
	}
	var names []string
	for _, file := range files {
		names = append(names, variable.FindAllString(readRoot(t, file), -1)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ofCommandLine are the variables of every command.
func ofCommandLine(t *testing.T) []string {
	t.Helper()
	parser, err := kong.New(new(commandLine), kong.DefaultEnvars("DOORBUSTER"))
	must(t, err)
	var names []string
	var collect func(node *kong.Node)
	collect = func(node *kong.Node) {
		for _, flag := range node.Flags {
			names = append(names, flag.Envs...)
		}
		for _, child := range node.Children {
			collect(child)
		}
	}
	collect(parser.Model.Node)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "DOORBUSTER_HELP" }) // kong's own
	slices.Sort(names)
	return slices.Compact(names)
}

// One set of variables serves a whole deployment, whatever program is started in it.
// A variable that nobody knows is told before anything else that may be wrong.
func TestEveryProgramAcceptsTheVariablesOfAllOthers(t *testing.T) {
	unset(t)
	names := setSomewhere(t)
	if !slices.Contains(names, "DOORBUSTER_URL") || !slices.Contains(names, "DOORBUSTER_WEBHOOK_SECRETS") {
		t.Fatalf("found only %v", names)
	}
	names = append(names, ofCommandLine(t)...)
	if !slices.Contains(names, "DOORBUSTER_GATEWAY_KEY") || !slices.Contains(names, "DOORBUSTER_ORDER_URL") {
		t.Fatalf("found only %v", names)
	}
	for _, name := range names {
		t.Setenv(name, "")
	}
	programs := serviceSettings()
	programs["doorbuster"] = new(commandLine)
	for name, settings := range programs {
		_, err := config.Parse(config.Program{Name: name}, settings, nil)
		if err != nil && strings.Contains(err.Error(), "unknown environment variable") {
			t.Errorf("%s: %v", name, err)
		}
	}
	documented := readRoot(t, "docs/configuration.md")
	for _, name := range names {
		if !strings.Contains(documented, "`"+name+"`") {
			t.Errorf("docs/configuration.md lacks %s", name)
		}
	}
}
