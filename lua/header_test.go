package lua_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/stock"
)

// source is one .lua file: the comment it begins with, and its code.
type source struct {
	name, header, code string
}

func sources(t *testing.T) []source {
	t.Helper()
	files, err := filepath.Glob("*.lua")
	if err != nil || len(files) < 7 {
		t.Fatalf("found the scripts %v, error %v", files, err)
	}
	var all []source
	for _, file := range files {
		all = append(all, read(t, file))
	}
	return all
}

func read(t *testing.T, file string) source {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := source{name: file}
	inHeader := true
	for line := range strings.Lines(string(text)) {
		inHeader = inHeader && strings.HasPrefix(line, "--")
		if inHeader {
			s.header += strings.TrimPrefix(line, "--")
		} else if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			s.code += line
		}
	}
	return s
}

// scripts are the sources that Redis runs by themselves.
func scripts(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(sources(t), func(s source) bool { return s.name == "fence.lua" })
}

// find returns the first group of every match.
func find(pattern, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func set(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// documented returns how many KEYS or ARGV the header names one by one, and where
// the open end ("KEYS[8..]") begins, 0 for none.
func (s source) documented(t *testing.T, what string) (fixed, rest int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^ `+what+`\[(\d+)(\.\.)?\]((?:, `+what+`\[\d+\])*)(, \.\.\.)?`).FindAllStringSubmatch(s.header, -1) {
		n := number(t, m[1])
		if n != fixed+1 || rest != 0 {
			t.Errorf("%s: %s[%d] is documented after %d", s.name, what, n, fixed)
		}
		if m[2] != "" || m[4] != "" {
			rest = n
		} else {
			fixed = n
		}
	}
	return fixed, rest
}

// bound returns the names that the code gives to KEYS, in order.
func (s source) bound(t *testing.T) []string {
	t.Helper()
	if m := regexp.MustCompile(`(?m)^local (.*) = unpack\(KEYS, 1, (\d+)\)$`).FindStringSubmatch(s.code); m != nil {
		names := strings.Split(m[1], ", ")
		if len(names) != number(t, m[2]) {
			t.Errorf("%s: %d names for %s keys", s.name, len(names), m[2])
		}
		return names
	}
	m := regexp.MustCompile(`(?m)^local ([a-z, ]+) = (KEYS\[1\](?:, KEYS\[\d+\])*)$`).FindStringSubmatch(s.code)
	if m == nil {
		t.Fatalf("%s: the code gives no names to KEYS", s.name)
	}
	names := strings.Split(m[1], ", ")
	for i, key := range strings.Split(m[2], ", ") {
		if key != "KEYS["+strconv.Itoa(i+1)+"]" {
			t.Errorf("%s: name %d is for %s", s.name, i+1, key)
		}
	}
	return names
}

func TestHeaderNamesTheKeysTheCodeBinds(t *testing.T) {
	for _, s := range scripts(t) {
		fixed, rest := s.documented(t, "KEYS")
		names := s.bound(t)
		if len(names) != fixed {
			t.Errorf("%s: documents %d keys, binds %v", s.name, fixed, names)
		}
		patterns := find(`(?m)^ KEYS\[\d+\] \S*:([a-z]+)(?::PROCESS)?$`, s.header)
		if !slices.Equal(patterns, names) {
			t.Errorf("%s: documents the keys %v, binds %v", s.name, patterns, names)
		}
		if rest != 0 && rest != fixed+1 {
			t.Errorf("%s: KEYS from %d on follow %d", s.name, rest, fixed)
		}
		if open := strings.Contains(s.code, "#KEYS"); open != (rest != 0) {
			t.Errorf("%s: uses a varying number of keys: %v, documents one: %v", s.name, open, rest != 0)
		}
		for _, first := range find(`first_stock.* = (\d+)`, s.code) {
			if number(t, first) != rest {
				t.Errorf("%s: takes stock keys from %s on, documents %d", s.name, first, rest)
			}
		}
	}
}

func TestHeaderKeysAreTheOnesTheStoreBuilds(t *testing.T) {
	keys := stock.KeysOf("SALE")
	built := []string{
		keys.Meta(), keys.Buyers(), keys.Grants(), keys.Applied(), keys.Outboxes(), keys.Rate(), keys.Used("LIMIT", "PERIOD"),
		keys.Outbox("PROCESS"), keys.Stock("SKU"), strings.TrimSuffix(keys.Meta(), "meta") + "tmp:TOKEN:NAME",
	}
	for _, s := range scripts(t) {
		for _, pattern := range find(`(doorbuster:[^\s,]+)`, s.header) {
			if !slices.Contains(built, pattern) {
				t.Errorf("%s: no key is like %s", s.name, pattern)
			}
		}
	}
}

func TestHeaderNamesTheArgumentsTheCodeUses(t *testing.T) {
	for _, s := range scripts(t) {
		fixed, rest := s.documented(t, "ARGV")
		used := 0
		for _, n := range find(`ARGV\[(\d+)\]`, s.code) {
			used = max(used, number(t, n))
		}
		if used != fixed {
			t.Errorf("%s: documents %d arguments, uses %d", s.name, fixed, used)
		}
		first := find(`local (?:first_stock, )?first_(?:limit|units|count) = (?:\d+, )?(\d+)`, s.code)
		switch {
		case rest == 0 && len(first) != 0:
			t.Errorf("%s: uses arguments from %s on, documents none", s.name, first[0])
		case rest != 0 && (len(first) != 1 || number(t, first[0]) != rest || rest != fixed+1):
			t.Errorf("%s: documents arguments from %d on, uses them from %v", s.name, rest, first)
		}
	}
}

func TestHeaderNamesEveryAnswer(t *testing.T) {
	for _, s := range scripts(t) {
		_, returns, ok := strings.Cut(s.header, "Returns")
		if !ok {
			t.Errorf("%s: documents no return codes", s.name)
		}
		documented := set(find(`\{'(\w+)'`, returns))
		// A table constructor or a conditional expression in a return.
		code := find(`return \{ '(\w+)'`, s.code)
		for _, choice := range find(`return \{ ([^'}]* and '\w+' or '\w+')`, s.code) {
			code = append(code, find(`'(\w+)'`, choice)...)
		}
		if !slices.Equal(documented, set(code)) {
			t.Errorf("%s: documents the answers %v, gives %v", s.name, documented, set(code))
		}
		if fenced := strings.Contains(s.code, "distrust(") || strings.Contains(s.code, "moved("); fenced == (s.name == "trim.lua") {
			t.Errorf("%s: asks the fence: %v", s.name, fenced)
		}
	}
}

func TestReasonsOfTheFenceAreDocumentedAndKnown(t *testing.T) {
	known := set([]string{stock.ReasonNoState, stock.ReasonOtherEra, stock.ReasonMoved, stock.ReasonDamaged})
	fence := read(t, "fence.lua")
	if got := set(find(`(?m)^   (\w+)  `, fence.header)); !slices.Equal(got, known) {
		t.Errorf("fence.lua documents %v, the store knows %v", got, known)
	}
	if got := set(find(`return '(\w+)'`, fence.code)); !slices.Equal(got, known) {
		t.Errorf("fence.lua gives %v, the store knows %v", got, known)
	}
	for _, s := range scripts(t) {
		for _, reason := range find(`'distrusted', '(\w+)'`, s.code) {
			if !slices.Contains(known, reason) {
				t.Errorf("%s: gives the reason %s, the store knows %v", s.name, reason, known)
			}
		}
	}
}

func TestCodesOfAGrabAreDocumentedAndKnown(t *testing.T) {
	known := map[string]bool{}
	for _, c := range []stock.Code{
		stock.CodeWon, stock.CodeReplayed, stock.CodeAlreadyGrabbed, stock.CodeLimit, stock.CodeCount, stock.CodeSoldOut, stock.CodeThrottled,
	} {
		known[string(c)] = true
	}
	want := slices.Sorted(maps.Keys(known))
	grab := read(t, "grab.lua")
	if got := set(find(`(?m)^     ([A-Z])  `, grab.header)); !slices.Equal(got, want) {
		t.Errorf("grab.lua documents %v, the store knows %v", got, want)
	}
	_, decide, _ := strings.Cut(grab.code, "local function replay")
	codes := append(find(`return '([A-Z])'`, decide), find(`detail\('([A-Z])'`, decide)...)
	if got := set(codes); !slices.Equal(got, want) {
		t.Errorf("grab.lua gives %v, the store knows %v", got, want)
	}
	withDetail := set(find(`detail\('([A-Z])'`, decide))
	if !slices.Equal(withDetail, set(find(`(?m)^     ([A-Z])  .*detail:`, grab.header))) {
		t.Errorf("grab.lua gives a detail with %v, documents others", withDetail)
	}
}

func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	call := regexp.MustCompile(`redis\.p?call\(([^,)]+)(?:, ([^,)]+))?`)
	for _, s := range sources(t) {
		var names []string
		if s.name == "fence.lua" {
			names = []string{"meta", "buyers", "grants", "applied"} // as parameters
		} else {
			names = s.bound(t)
		}
		calls := call.FindAllStringSubmatch(s.code, -1)
		if len(calls) != strings.Count(s.code, "redis.") {
			t.Errorf("%s: uses redis in a way this test can't read", s.name)
		}
		for _, m := range calls {
			command, key := m[1], m[2]
			if command == "'INFO'" || command == "'TIME'" || slices.Contains(names, key) || strings.HasPrefix(key, "KEYS[") || key == "limit.key" {
				continue
			}
			t.Errorf("%s: %s on %s, which is none of KEYS", s.name, command, key)
		}
	}
}
