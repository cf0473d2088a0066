package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

const natsModule = "github.com/nats-io/nats-server/v2"

// natsBinary returns the path of nats-server in the version that go.mod names, built once per machine and
// user: a server in a process of its own can be killed by itself.
var natsBinary = sync.OnceValues(func() (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		// Not in a checkout: an installed one will do, of whatever version.
		if path, missing := exec.LookPath("nats-server"); missing == nil {
			return path, nil
		}
		return "", fmt.Errorf("nats-server not found: run this in a checkout of Doorbuster, or install nats-server (%w)", err)
	}
	version, err := GoCommand(root, nil, "list", "-m", "-f", "{{.Version}}", natsModule)
	if err != nil {
		return "", err
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, fmt.Sprintf("nats-server-%s-%s", strings.TrimSpace(version), runtime.Version()))
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	// Built beside and renamed, so that an interrupted build is never taken for a binary.
	if _, err := GoCommand(root, []string{"CGO_ENABLED=0"}, "build", "-o", path+".new", natsModule); err != nil {
		return "", err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("keep nats-server: %w", err)
	}
	return path, nil
})

// ModuleRoot is the folder of this module's go.mod, at or above the working folder.
func ModuleRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", fmt.Errorf("find the module: no go.mod above the working folder")
		}
		folder = parent
	}
}

// GoCommand runs the go command in folder and returns its standard output.
func GoCommand(folder string, env []string, args ...string) (string, error) {
	command := exec.Command("go", args...)
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(output), nil
}
