package harness

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// binaries are the programs of this module that this test binary has built, by package.
var binaries struct {
	sync.Mutex
	built map[string]string
}

// Binary builds a main package of this module, such as "services/grab", once per test binary, and returns the
// path of the program. It has the race detector when the test has it.
func Binary(t testing.TB, mainPackage string) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	if path, ok := binaries.built[mainPackage]; ok {
		return path
	}
	root, err := servers.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := servers.NewFolder("bin")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, filepath.Base(mainPackage))
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	args = append(args, "./"+strings.TrimPrefix(mainPackage, "./"))
	if _, err := servers.GoCommand(root, nil, args...); err != nil {
		t.Fatal(err)
	}
	if binaries.built == nil {
		binaries.built = make(map[string]string)
	}
	binaries.built[mainPackage] = path
	return path
}
