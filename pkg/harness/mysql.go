package harness

import (
	"strings"
	"sync"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// MySQLServer is a private MariaDB (or MySQL) server, as durable as one in production: each commit is
// flushed to disk before it is answered. Its user is root, without a password.
type MySQLServer struct {
	server
	mysql *servers.MySQL
}

// MariaDB starts a database server for this test. It takes about a second; a test that breaks nothing asks
// for SharedMariaDB.
func MariaDB(t testing.TB) *MySQLServer {
	t.Helper()
	s, err := servers.StartMySQL()
	if err != nil {
		t.Fatal(err)
	}
	return &MySQLServer{server: ownedBy(t, s.Server), mysql: s}
}

var sharedMySQL struct {
	sync.Mutex
	*MySQLServer
}

// SharedMariaDB returns the one database server that all tests of this binary share; each takes its own
// database with NewDatabase. Main, which must be running, stops it.
func SharedMariaDB(t testing.TB) *MySQLServer {
	t.Helper()
	if !mainRuns.Load() {
		t.Fatal("SharedMariaDB needs func TestMain(m *testing.M) { harness.Main(m) }, which stops the server")
	}
	sharedMySQL.Lock()
	defer sharedMySQL.Unlock()
	if sharedMySQL.MySQLServer == nil {
		s, err := servers.StartMySQL()
		if err != nil {
			t.Fatal(err)
		}
		sharedMySQL.MySQLServer = &MySQLServer{server: server{t: t, server: s.Server, shared: true}, mysql: s}
	}
	return sharedMySQL.MySQLServer
}

// DSN is the go-sql-driver address of a database on this server; times are read and written in UTC.
func (s *MySQLServer) DSN(database string) string { return s.mysql.DSN(database) }

// NewDatabase creates an empty database for this test and returns its DSN.
func (s *MySQLServer) NewDatabase(t testing.TB) string {
	t.Helper()
	name := strings.ReplaceAll(Name(t), "-", "_")
	if err := s.mysql.CreateDatabase(name); err != nil {
		t.Fatal(err)
	}
	if s.shared {
		t.Cleanup(func() {
			if err := s.mysql.DropDatabase(name); err != nil {
				t.Error(err)
			}
		})
	}
	return s.DSN(name)
}
