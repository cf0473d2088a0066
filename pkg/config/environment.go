package config

import (
	"fmt"
	"regexp"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// serviceLink matches the variables that Kubernetes sets in every pod for a
// Service named doorbuster or doorbuster-something. They are not ours to refuse.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// serviceAddress is the value of the one service link whose name could be a setting's.
var serviceAddress = regexp.MustCompile(`^(tcp|udp|sctp)://`)

// checkEnvironment refuses a DOORBUSTER_ variable that neither this program nor
// any Doorbuster service nor the command line knows. Those of another program are
// accepted, so that all of a deployment may share one set of variables.
func checkEnvironment(app *kong.Application, environ []string) error {
	known := map[string]bool{}
	for _, flag := range allFlags(app.Node) {
		for _, name := range flag.Envs {
			known[name] = true
		}
	}
	for _, service := range Services() {
		for _, flag := range service.flags {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
	}
	var unknown []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix+"_") || known[name] || isServiceLink(name, value) {
			continue
		}
		unknown = append(unknown, name)
	}
	if len(unknown) == 0 {
		return nil
	}
	sort.Strings(unknown)
	return fmt.Errorf("unknown environment variable %s%s", unknown[0], hint(unknown[0], known))
}

func isServiceLink(name, value string) bool {
	if serviceLink.MatchString(name) {
		return true
	}
	return strings.HasSuffix(name, "_PORT") && serviceAddress.MatchString(value)
}

// hint names the known name nearest to a misspelt one, when one is near enough.
func hint(name string, known map[string]bool) string {
	const tooFar = 3 // edits; so many make a different word
	nearest, distance := "", tooFar
	for candidate := range known {
		d := editDistance(name, candidate)
		if d < distance || d == distance && d < tooFar && candidate < nearest {
			nearest, distance = candidate, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", nearest)
}

// editDistance is the Levenshtein distance in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diagonal+cost)
			diagonal, row[j] = row[j], next
		}
	}
	return row[len(b)]
}
