package servers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// mysqlFlavour is the database server found on this machine.
type mysqlFlavour struct {
	path    string
	version string // what --version prints
}

// findMySQL looks once per process.
var findMySQL = sync.OnceValues(func() (mysqlFlavour, error) {
	path, err := mysqlProgram.path()
	if err != nil {
		return mysqlFlavour{}, err
	}
	version, err := exec.Command(path, "--no-defaults", "--version").CombinedOutput()
	if err != nil {
		return mysqlFlavour{}, fmt.Errorf("ask %s for its version: %w: %s", path, err, version)
	}
	return mysqlFlavour{path: path, version: string(version)}, nil
})

// settings are what a data folder is both made and run with.
func (f mysqlFlavour) settings(data string) []string {
	settings := []string{
		"--no-defaults", // Must be the first: nothing of the machine's own configuration counts.
		"--datadir=" + data,
		"--innodb-log-file-size=32M",
	}
	if os.Getuid() == 0 {
		settings = append(settings, "--user=root") // Otherwise the server refuses to run as root.
	}
	return settings
}

// template returns a data folder as the server's installer makes it. It is made once per machine, user and
// server version, and copied for each server.
func (f mysqlFlavour) template() (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(f.version + strings.Join(f.settings(""), " ")))
	path := filepath.Join(cache, "mysql-"+hex.EncodeToString(sum[:8]))
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	// Made beside and renamed, so that an interrupted installation is never taken for a template.
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("remove a half-made template database: %w", err)
	}
	if err := f.install(fresh); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("keep the template database: %w", err)
	}
	return path, nil
}

// install makes a data folder whose user root has no password and may connect from 127.0.0.1.
func (f mysqlFlavour) install(data string) error {
	command := exec.Command(f.path, append(f.settings(data), "--initialize-insecure", "--init-file="+data+".sql")...)
	if strings.Contains(f.version, "MariaDB") {
		installer, err := program{
			names: []string{"mariadb-install-db", "mysql_install_db"}, apt: mysqlProgram.apt, brew: mysqlProgram.brew,
		}.path()
		if err != nil {
			return err
		}
		command = exec.Command(installer,
			append(f.settings(data), "--auth-root-authentication-method=normal", "--skip-test-db")...)
	} else if err := os.WriteFile(data+".sql", []byte(mysqlLoopbackRoot), 0o600); err != nil {
		return fmt.Errorf("write the first statements: %w", err)
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make a template database with %s: %w\n%s", command.Path, err, output)
	}
	return nil
}

// mysqlLoopbackRoot lets root in by TCP: MySQL makes only root@localhost, MariaDB makes this one itself.
const mysqlLoopbackRoot = `CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
`
