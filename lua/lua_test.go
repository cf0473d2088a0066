package lua_test

import (
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/lua"
)

func TestEveryEraHasScriptsOfItsOwn(t *testing.T) {
	seen := map[string]lua.Era{}
	for _, era := range []lua.Era{lua.NewEra(""), lua.NewEra("abc1"), lua.NewEra("abc1")} {
		if !era.Valid() {
			t.Errorf("minted era %s is not valid", era)
		}
		for _, script := range lua.In(era).All() {
			if other, ok := seen[script.SHA]; ok {
				t.Errorf("eras %s and %s share a script", era, other)
			}
			seen[script.SHA] = era
		}
	}
	if len(seen) != 3*5 {
		t.Errorf("%d scripts in 3 eras, want 5 each", len(seen))
	}
}

func TestScriptsOfOneEraAreTheSameEverywhere(t *testing.T) {
	era := lua.NewEra("abc1")
	if lua.In(era) != lua.In(era) {
		t.Error("one era gave two sets of scripts")
	}
}

func TestEraStandsInTheText(t *testing.T) {
	for _, script := range lua.In("RANDOM-abc1").All() {
		if !strings.HasPrefix(script.Source, "local ERA = 'RANDOM-abc1'\nlocal REPLID = 'abc1'\n") {
			t.Errorf("script begins with %.60q", script.Source)
		}
	}
	if strings.Contains(lua.Trim, "ERA") {
		t.Error("trim.lua depends on an era")
	}
}

func TestTextThatCouldBeCodeIsNoEra(t *testing.T) {
	for _, era := range []lua.Era{"", "-", "-abc", "abc", "a'-b", "a-b'", "a-b-c", "a-b\n", "a b-c", `a\-b`} {
		if era.Valid() {
			t.Errorf("%q was taken for an era", era)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was put into a script", era)
				}
			}()
			lua.In(era)
		}()
	}
}
