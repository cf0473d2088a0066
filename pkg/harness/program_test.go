package harness

import (
	"errors"
	"testing"
)

func TestAMissingProgramNamesItsInstallCommandsInOneLine(t *testing.T) {
	nothing := func(string) (string, error) { return "", errors.New("not found") }
	for want, program := range map[string]program{
		"redis-server not found: apt-get install -y redis-server  |  brew install redis": redisProgram,
		"mariadbd not found: apt-get install -y mariadb-server  |  brew install mariadb": mysqlProgram,
	} {
		if _, err := program.find(nothing); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

func TestServersAreFoundOutsideThePath(t *testing.T) {
	look := func(file string) (string, error) {
		if file == "/usr/sbin/mysqld" {
			return file, nil
		}
		return "", errors.New("not found")
	}
	path, err := mysqlProgram.find(look)
	must(t, err)
	if path != "/usr/sbin/mysqld" {
		t.Errorf("found %s", path)
	}
}
