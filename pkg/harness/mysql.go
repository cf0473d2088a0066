package harness

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// sqlLimit bounds the harness's own statements.
const sqlLimit = 20 * time.Second

// MySQLServer is a private MariaDB (or MySQL) server, as durable as one in production: each commit is
// flushed to disk before it is answered. Its user is root, without a password.
type MySQLServer struct {
	*server
	flavour mysqlFlavour
}

// MariaDB starts a database server for this test. It takes about a second; a test that breaks nothing asks
// for SharedMariaDB.
func MariaDB(t testing.TB) *MySQLServer {
	t.Helper()
	s, err := newMySQL()
	if err != nil {
		t.Fatal(err)
	}
	s.ownedBy(t)
	return s
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
		s, err := newMySQL()
		if err != nil {
			t.Fatal(err)
		}
		s.t, s.shared = t, true
		if err := s.launch(); err != nil {
			t.Fatal(err)
		}
		sharedMySQL.MySQLServer = s
	}
	return sharedMySQL.MySQLServer
}

// newMySQL prepares a server with a fresh copy of the template's data.
func newMySQL() (*MySQLServer, error) {
	flavour, err := findMySQL()
	if err != nil {
		return nil, err
	}
	template, err := flavour.template()
	if err != nil {
		return nil, err
	}
	folder, err := newFolder("mysql")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(folder, "data"), os.DirFS(template)); err != nil {
		return nil, fmt.Errorf("copy the template database: %w", err)
	}
	s := &MySQLServer{flavour: flavour, server: &server{
		name: filepath.Base(flavour.path), folder: folder, program: flavour.path,
	}}
	s.arguments, s.ping = s.commandLine, s.answers
	return s, nil
}

func (s *MySQLServer) commandLine() ([]string, error) {
	args := append(s.flavour.settings(filepath.Join(s.folder, "data")),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", s.port.number),
		"--socket="+filepath.Join(s.folder, "sock"),
		"--tmpdir="+s.folder, // A starting server deletes the temporary tables it finds, others' too.
		"--pid-file="+filepath.Join(s.folder, "pid"),
		"--skip-name-resolve",
		"--max-connections=400",
		"--innodb-buffer-pool-size=64M",
		"--innodb-flush-log-at-trx-commit=1",
		"--default-time-zone=+00:00",
		"--performance-schema=OFF",
	)
	return args, nil
}

func (s *MySQLServer) answers(ctx context.Context) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// DSN is the go-sql-driver address of a database on this server; times are read and written in UTC.
func (s *MySQLServer) DSN(database string) string {
	return s.config(database).FormatDSN()
}

func (s *MySQLServer) config(database string) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = "root", "tcp", s.Addr(), database
	config.ParseTime, config.Loc = true, time.UTC
	config.Timeout = 5 * time.Second
	config.Params = map[string]string{"time_zone": "'+00:00'"}
	return config
}

// open connects without a database and without the driver's log: a server that starts is not news.
func (s *MySQLServer) open() (*sql.DB, error) {
	config := s.config("")
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.name, err)
	}
	return sql.OpenDB(connector), nil
}

// NewDatabase creates an empty database for this test and returns its DSN.
func (s *MySQLServer) NewDatabase(t testing.TB) string {
	t.Helper()
	name := strings.ReplaceAll(Name(t), "-", "_")
	if err := s.exec("CREATE DATABASE `" + name + "` CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	if s.shared {
		t.Cleanup(func() {
			if err := s.exec("DROP DATABASE `" + name + "`"); err != nil {
				t.Error(err)
			}
		})
	}
	return s.DSN(name)
}

func (s *MySQLServer) exec(statement string) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), sqlLimit)
	defer cancel()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
