package stock_test

import (
	"errors"
	"testing"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

func TestMinterKeepsItsEraWhileTheServerLives(t *testing.T) {
	server := harness.Redis(t)
	client := server.Client()
	minter := stock.NewMinter(stock.New(client))
	mint := func() lua.Era {
		t.Helper()
		era := must(minter.Era(t.Context(), "s"))(t)
		for _, script := range lua.In(era).All() {
			if exists := must(client.ScriptExists(t.Context(), script.SHA).Result())(t); !exists[0] {
				t.Fatalf("era %s was returned without its scripts", era)
			}
		}
		return era
	}
	seen := map[lua.Era]string{mint(): "the first"}
	if _, same := seen[mint()]; !same {
		t.Error("a second era for the same life of the server")
	}
	for what, happen := range map[string]func(){
		"SCRIPT FLUSH":         func() { _ = client.ScriptFlush(t.Context()).Err() },
		"a new replication id": func() { changeReplID(t, client) },
		"a restart": func() {
			server.Kill()
			server.Start()
			client = server.Client()
			minter = stock.NewMinter(stock.New(client))
		},
	} {
		happen()
		era := mint()
		if before, old := seen[era]; old {
			t.Errorf("after %s: the era of %s again", what, before)
		}
		seen[era] = what
	}
}

func TestMinterRefusesAReplica(t *testing.T) {
	replica := harness.Redis(t, harness.ReplicaOf(harness.Redis(t)))
	if era, err := stock.NewMinter(stock.New(replica.Client())).Era(t.Context(), "s"); err == nil {
		t.Errorf("minted %s on a replica", era)
	}
}

func TestEvictionPolicyIsTheServers(t *testing.T) {
	client := harness.Redis(t).Client()
	store := stock.New(client)
	for _, want := range []string{"noeviction", "allkeys-lru"} {
		if err := client.ConfigSet(t.Context(), "maxmemory-policy", want).Err(); err != nil {
			t.Fatal(err)
		}
		if got := must(store.EvictionPolicy(t.Context()))(t); got != want {
			t.Errorf("policy is %s, want %s", got, want)
		}
	}
	// As managed servers do.
	if err := client.Do(t.Context(), "ACL", "SETUSER", "default", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	if policy, err := store.EvictionPolicy(t.Context()); !errors.Is(err, stock.ErrPolicyUnknown) {
		t.Errorf("got %q, %v, want ErrPolicyUnknown", policy, err)
	}
}
