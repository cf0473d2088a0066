// Package api_test holds the API documentation against the code.
package api_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/order"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

type object = map[string]any

func load(t *testing.T) object {
	t.Helper()
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document object
	if err := yaml.UnmarshalWithOptions(text, &document, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return document
}

// at follows names into the document.
func at(t *testing.T, from any, names ...string) any {
	t.Helper()
	for _, name := range names {
		inner, ok := from.(object)[name]
		if !ok {
			t.Fatalf("the document has no %s", strings.Join(names, "/"))
		}
		from = inner
	}
	return from
}

var methods = []string{"get", "put", "post", "delete", "patch"}

// operations are the documented ones by pattern: "GET /v1/orders/{order_id}".
func operations(t *testing.T, document object) map[string]object {
	t.Helper()
	found := make(map[string]object)
	for path, item := range at(t, document, "paths").(object) {
		for method, operation := range item.(object) {
			if slices.Contains(methods, method) {
				found[strings.ToUpper(method)+" "+path] = operation.(object)
			}
		}
	}
	return found
}

func TestEveryRouteIsDocumentedAndEveryDocumentedRouteExists(t *testing.T) {
	served := []string{"GET /healthz", "GET /readyz", "GET /metrics"} // of pkg/daemon, on every service
	served = append(served, grab.Routes...)
	served = append(served, order.Routes...)
	served = append(served, admin.Routes()...)
	documented := operations(t, load(t))
	for _, pattern := range served {
		if _, ok := documented[pattern]; !ok {
			t.Errorf("%s is served and not documented", pattern)
		}
	}
	for pattern := range documented {
		if !slices.Contains(served, pattern) {
			t.Errorf("%s is documented and not served", pattern)
		}
	}
}

var pathParameter = regexp.MustCompile(`\{([^}]+)\}`)

func TestEveryOperationIsComplete(t *testing.T) {
	document := load(t)
	ids := make(map[string]string)
	for pattern, operation := range operations(t, document) {
		_, path, _ := strings.Cut(pattern, " ")
		id, _ := operation["operationId"].(string)
		if other, taken := ids[id]; taken || id == "" {
			t.Errorf("%s: operationId %q is missing or that of %s", pattern, id, other)
		}
		ids[id] = pattern
		if operation["summary"] == nil || operation["tags"] == nil {
			t.Errorf("%s: a summary and tags are required", pattern)
		}
		checkSecurity(t, pattern, operation)
		shared, _ := at(t, document, "paths", path).(object)["parameters"].([]any)
		var declared []string
		for _, parameter := range shared {
			declared = append(declared, at(t, resolve(t, document, parameter), "name").(string))
		}
		for _, name := range pathParameter.FindAllStringSubmatch(path, -1) {
			if !slices.Contains(declared, name[1]) {
				t.Errorf("%s: path parameter %s is not declared", pattern, name[1])
			}
		}
	}
}

// checkSecurity holds that what is an operator's is behind the key and answers so.
func checkSecurity(t *testing.T, pattern string, operation object) {
	t.Helper()
	operator := strings.Contains(pattern, "/admin/")
	security, declared := operation["security"].([]any)
	keyed := declared && len(security) == 1 && security[0].(object)["admin_key"] != nil
	if operator != keyed {
		t.Errorf("%s: security %v", pattern, security)
	}
	_, refuses := operation["responses"].(object)["401"]
	if refuses != (len(security) > 0) {
		t.Errorf("%s: the answer 401 is documented: %t", pattern, refuses)
	}
}

// resolve follows a reference, if it is one.
func resolve(t *testing.T, document object, value any) object {
	t.Helper()
	inner := value.(object)
	reference, ok := inner["$ref"].(string)
	if !ok {
		return inner
	}
	path, local := strings.CutPrefix(reference, "#/")
	if !local {
		t.Fatalf("reference %s leaves the document", reference)
	}
	return at(t, document, strings.Split(path, "/")...).(object)
}

func TestEveryReferenceLeadsSomewhereAndEveryComponentIsUsed(t *testing.T) {
	document := load(t)
	used := make(map[string]bool)
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case object:
			if reference, ok := value["$ref"].(string); ok {
				resolve(t, document, value)
				used[reference] = true
			}
			for _, inner := range value {
				walk(inner)
			}
		case []any:
			for _, inner := range value {
				walk(inner)
			}
		}
	}
	walk(document)
	for kind, components := range at(t, document, "components").(object) {
		for name := range components.(object) {
			if reference := fmt.Sprintf("#/components/%s/%s", kind, name); kind != "securitySchemes" && !used[reference] {
				t.Errorf("%s is used nowhere", reference)
			}
		}
	}
}

// codesIn reads the constants whose names begin with Code from the Go files of a package.
func codesIn(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			constant, ok := node.(*ast.ValueSpec)
			if !ok || len(constant.Values) != 1 || !strings.HasPrefix(constant.Names[0].Name, "Code") {
				return true
			}
			if text, ok := constant.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
				code, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code)
			}
			return true
		})
	}
	return codes
}

func TestTheProblemCodesAreThoseOfTheCode(t *testing.T) {
	want := slices.Concat(codesIn(t, "pkg/web"), codesIn(t, "pkg/admin"))
	// A grab that won nothing has its outcome as its code.
	for _, o := range sale.Outcomes {
		if o != sale.Won && o != sale.Pending && !slices.Contains(want, string(o)) {
			want = append(want, string(o))
		}
	}
	sameWords(t, "problem codes", enum(t, "ProblemCode"), want)
}

func TestTheOutcomesAreThoseOfTheCode(t *testing.T) {
	sameWords(t, "outcomes", enum(t, "Outcome"), sale.OutcomeNames())
}

// enum returns the values of a schema.
func enum(t *testing.T, schema string) []string {
	t.Helper()
	var words []string
	for _, value := range at(t, load(t), "components", "schemas", schema, "enum").([]any) {
		words = append(words, value.(string))
	}
	return words
}

func sameWords(t *testing.T, what string, documented, inCode []string) {
	t.Helper()
	left := make(map[string]bool)
	for _, word := range inCode {
		left[word] = true
	}
	for _, word := range documented {
		if !left[word] {
			t.Errorf("%s: %s is documented, and not in the code or twice", what, word)
		}
		delete(left, word)
	}
	for _, word := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s: %s is not documented", what, word)
	}
}
