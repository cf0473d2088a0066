package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// filePath is the value of --config.
type filePath string

// file is a YAML file that was read: one mapping from flag names to plain values
// or lists of them.
type file struct {
	path    string
	entries map[string]fileEntry
}

type fileEntry struct {
	value string // lists are joined by commas, as on the command line
	line  int
}

// BeforeResolve is called by kong once the path is known; it reads the file into f.
func (filePath) BeforeResolve(ctx *kong.Context, trace *kong.Path, f *file) error {
	path, _ := ctx.FlagValue(trace.Flag).(filePath)
	if path == "" {
		return nil
	}
	entries, err := readFile(string(path), ctx.Flags())
	if err != nil {
		return err
	}
	f.path, f.entries = string(path), entries
	ctx.AddResolver(kong.ResolverFunc(f.resolve))
	return nil
}

// resolve gives kong the file's value for a flag. kong lets a resolver win over
// the environment; here the environment wins, so a flag whose variable is set is left alone.
func (f *file) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if _, ok := variableOf(flag); ok {
		return nil, nil
	}
	if entry, ok := f.entries[flag.Name]; ok {
		return entry.value, nil
	}
	return nil, nil
}

// variableOf returns the name of the environment variable that sets the flag, if one does.
func variableOf(flag *kong.Flag) (string, bool) {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name, true
		}
	}
	return "", false
}

func readFile(path string, flags []*kong.Flag) (map[string]fileEntry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	known := map[string]bool{}
	for _, flag := range flags {
		if isSetting(flag) {
			known[flag.Name] = true
		}
	}
	entries, err := parseFile(text, known)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return entries, nil
}

// parseFile reads the settings. Its errors begin with the line.
func parseFile(text []byte, known map[string]bool) (map[string]fileEntry, error) {
	root, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(err)
	}
	entries := map[string]fileEntry{}
	for _, doc := range root.Docs {
		if doc.Body == nil {
			continue
		}
		for _, pair := range pairsOf(doc.Body) {
			line := pair.Key.GetToken().Position.Line
			key := pair.Key.GetToken().Value
			if !known[key] {
				return nil, fmt.Errorf("%d: unknown key %s%s", line, key, hint(key, known))
			}
			if earlier, twice := entries[key]; twice {
				return nil, fmt.Errorf("%d: key %s is already set in line %d", line, key, earlier.line)
			}
			value, given, err := plainValue(pair.Value)
			if err != nil {
				return nil, fmt.Errorf("%d: key %s: %w", line, key, err)
			}
			if given {
				entries[key] = fileEntry{value: value, line: line}
			}
		}
		if len(pairsOf(doc.Body)) == 0 && doc.Body.Type() != ast.MappingType && doc.Body.Type() != ast.NullType {
			return nil, fmt.Errorf("%d: expected lines of the form key: value", doc.Body.GetToken().Position.Line)
		}
	}
	return entries, nil
}

// syntaxError keeps the line and the message of a YAML error, and leaves out the
// excerpt of the file, which may show a secret.
func syntaxError(err error) error {
	if yamlErr, ok := errors.AsType[yaml.Error](err); ok && yamlErr.GetToken() != nil {
		return fmt.Errorf("%d: %s", yamlErr.GetToken().Position.Line, yamlErr.GetMessage())
	}
	return errors.New("1: not valid YAML")
}

func pairsOf(body ast.Node) []*ast.MappingValueNode {
	switch node := body.(type) {
	case *ast.MappingNode:
		return node.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{node}
	default:
		return nil
	}
}

// plainValue returns a scalar, or the comma-joined scalars of a list, as text.
// A key without a value, or with an empty list, counts as not given.
func plainValue(node ast.Node) (value string, given bool, err error) {
	switch node := node.(type) {
	case *ast.NullNode:
		return "", false, nil
	case *ast.SequenceNode:
		parts := make([]string, 0, len(node.Values))
		for _, item := range node.Values {
			part, given, err := plainValue(item)
			if err != nil {
				return "", false, err
			}
			if _, nested := item.(*ast.SequenceNode); nested || !given {
				return "", false, errors.New("must be a list of plain values")
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ","), len(parts) > 0, nil
	case *ast.LiteralNode:
		return node.Value.Value, true, nil
	case ast.ScalarNode:
		return node.GetToken().Value, true, nil
	default:
		return "", false, errors.New("must be a plain value")
	}
}
