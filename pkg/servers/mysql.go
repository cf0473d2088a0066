package servers

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
)

// sqlLimit bounds the statements of this package.
const sqlLimit = 20 * time.Second

// MySQL is a private MariaDB (or MySQL) server, as durable as one in production: each commit is flushed to disk
// before it is answered. Its user is root, without a password.
type MySQL struct {
	*Server

	flavour mysqlFlavour
}

// StartMySQL starts a server on a fresh copy of the installer's data.
func StartMySQL() (*MySQL, error) {
	flavour, err := findMySQL()
	if err != nil {
		return nil, err
	}
	template, err := flavour.template()
	if err != nil {
		return nil, err
	}
	folder, err := NewFolder("mysql")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(folder, "data"), os.DirFS(template)); err != nil {
		return nil, fmt.Errorf("copy the template database: %w", err)
	}
	s := &MySQL{flavour: flavour, Server: &Server{name: filepath.Base(flavour.path), folder: folder, program: flavour.path}}
	s.arguments, s.ping = s.commandLine, s.answers
	if err := s.launch(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *MySQL) commandLine() ([]string, error) {
	args := append(s.flavour.settings(filepath.Join(s.folder, "data")),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", s.Port()),
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

func (s *MySQL) answers(ctx context.Context) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// DSN is the go-sql-driver address of a database on this server; times are read and written in UTC.
func (s *MySQL) DSN(database string) string { return s.config(database).FormatDSN() }

func (s *MySQL) config(database string) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = "root", "tcp", s.Addr(), database
	config.ParseTime, config.Loc = true, time.UTC
	config.Timeout = 5 * time.Second
	config.Params = map[string]string{"time_zone": "'+00:00'"}
	return config
}

// open connects without a database and without the driver's log: a server that starts is not news.
func (s *MySQL) open() (*sql.DB, error) {
	config := s.config("")
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.name, err)
	}
	return sql.OpenDB(connector), nil
}

// CreateDatabase makes an empty database.
func (s *MySQL) CreateDatabase(name string) error {
	return s.exec("CREATE DATABASE `" + name + "` CHARACTER SET utf8mb4")
}

// DropDatabase removes a database.
func (s *MySQL) DropDatabase(name string) error { return s.exec("DROP DATABASE `" + name + "`") }

func (s *MySQL) exec(statement string) error {
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
