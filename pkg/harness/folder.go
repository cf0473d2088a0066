package harness

import (
	"os"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// Folder returns an empty folder that is removed when the test ends. Unlike t.TempDir its path is short
// enough for a Unix socket.
func Folder(t testing.TB, prefix string) string {
	t.Helper()
	folder, err := servers.NewFolder(prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Errorf("remove the folder of %s: %v", prefix, err)
		}
	})
	return folder
}
