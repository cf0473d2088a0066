package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQL says how to reach the ledger.
type MySQL struct {
	DSN         string        `name:"mysql" secret:"dsn" placeholder:"DSN" help:"MySQL or MariaDB: user:password@tcp(host:port)/database.${mysqlhelp=}"`
	MaxOpen     int           `name:"mysql-max-open" default:"16" min:"1" max:"1000" help:"Connections to MySQL."`
	DialTimeout time.Duration `name:"mysql-dial-timeout" default:"5s" min:"10ms" max:"1m" help:"Time to connect to MySQL."`
	Timeout     time.Duration `name:"mysql-timeout" default:"30s" min:"100ms" max:"10m" help:"Time for one statement to be sent, and for its answer to arrive."`
}

// errDSN leaves out what the driver says, which may quote a part of the password.
var errDSN = errors.New("--mysql: must be of the form user:password@tcp(host:port)/database")

// Validate checks the DSN, when there is one.
func (m *MySQL) Validate() error {
	if !m.Given() {
		return nil
	}
	_, err := m.Config()
	return err
}

// Given reports whether a MySQL is configured.
func (m *MySQL) Given() bool { return m.DSN != "" }

// errMySQLMissing is the error of a service that cannot do without MySQL.
var errMySQLMissing = errors.New("--mysql: must be given")

// Config returns the driver's configuration with all that the ledger relies on,
// whatever the DSN says: times are UTC on both sides, text is utf8mb4, arguments
// are interpolated (one round trip instead of three), a connection to a server
// that became read-only is given up.
func (m *MySQL) Config() (*mysql.Config, error) {
	config, err := mysql.ParseDSN(m.DSN)
	if err != nil {
		return nil, errDSN
	}
	if config.DBName == "" {
		return nil, fmt.Errorf("%w: the database is missing", errDSN)
	}
	if err := config.Apply(mysql.Charset("utf8mb4", config.Collation)); err != nil {
		return nil, errDSN
	}
	config.ParseTime = true
	config.Loc = time.UTC
	config.InterpolateParams = true
	config.RejectReadOnly = true
	config.Timeout = m.DialTimeout
	config.ReadTimeout = m.Timeout
	config.WriteTimeout = m.Timeout
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["time_zone"] = "'+00:00'"
	return config, nil
}

func (m *MySQL) required() error {
	if !m.Given() {
		return errMySQLMissing
	}
	return nil
}
