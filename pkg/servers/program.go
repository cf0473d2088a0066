package servers

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// program is a server program that is taken from the system.
type program struct {
	names     []string // in order of preference
	apt, brew string   // packages
}

var (
	redisProgram = program{names: []string{"redis-server"}, apt: "redis-server", brew: "redis"}
	mysqlProgram = program{names: []string{"mariadbd", "mysqld"}, apt: "mariadb-server", brew: "mariadb"}
)

// serverFolders are where systems keep server programs without having them on every PATH.
var serverFolders = []string{
	"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/sbin",
}

// find returns the program's path, or an error that says in one line how to install it. look is
// exec.LookPath; it also judges absolute paths.
func (p program) find(look func(string) (string, error)) (string, error) {
	for _, name := range p.names {
		if path, err := look(name); err == nil {
			return path, nil
		}
		for _, folder := range serverFolders {
			if path, err := look(filepath.Join(folder, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s not found: apt-get install -y %s  |  brew install %s", p.names[0], p.apt, p.brew)
}

func (p program) path() (string, error) {
	return p.find(exec.LookPath)
}
