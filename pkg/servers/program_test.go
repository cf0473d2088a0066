package servers

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

func TestARedisThatReplicatesScriptsIsRefused(t *testing.T) {
	for output, want := range map[string]string{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=f45": "",
		"Redis server v=10.0.0 sha=00000000:0 malloc=libc bits=64 build=1":             "",
		"Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=a3f": "redis-server is version 6.0.16: version 7 or newer is needed",
		"what?": `redis-server does not tell its version: "what?"`,
	} {
		got := ""
		if err := checkRedisVersion(output); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: error %q, want %q", output, got, want)
		}
	}
}
