package lua_test

import (
	"testing"

	"github.com/doorbuster/doorbuster/lua"
)

// BenchmarkIn is why the store keeps the names of an era's scripts.
func BenchmarkIn(b *testing.B) {
	era := lua.NewEra("0123456789abcdef0123456789abcdef01234567")
	b.ReportAllocs()
	for b.Loop() {
		if lua.In(era).Grab.SHA == "" {
			b.Fatal("a script without a name")
		}
	}
}
