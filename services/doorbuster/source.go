package main

import (
	"net/url"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/config"
)

// Where the value of a flag came from.
const (
	byFlag        = "flag"
	byFile        = "file"
	byEnvironment = "environment" // or it is the default
)

// givenBy tells where the value of a flag came from.
func givenBy(parsed *kong.Context, name string) string {
	for _, step := range parsed.Path {
		switch {
		case step.Flag == nil || step.Flag.Name != name:
		case step.Resolved:
			return byFile
		default:
			return byFlag
		}
	}
	return byEnvironment
}

// unknownHost stands for an address that can't be read; its text may hold a password.
const unknownHost = "?"

// redisHost is host:port of every server, comma separated.
func redisHost(r *config.Redis) string {
	options, err := r.Options()
	if err != nil {
		return unknownHost
	}
	return strings.Join(options.Addrs, ",")
}

// mysqlHost is host:port of the server, or its socket.
func mysqlHost(m *config.MySQL) string {
	c, err := m.Config()
	if err != nil {
		return unknownHost
	}
	return c.Addr
}

// natsHost is host:port of every server, comma separated.
func natsHost(n *config.NATS) string {
	var hosts []string
	for one := range strings.SplitSeq(n.URL, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		host := unknownHost
		if parsed, err := url.Parse(one); err == nil {
			host = parsed.Host
		}
		hosts = append(hosts, host)
	}
	return strings.Join(hosts, ",")
}
