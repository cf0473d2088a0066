package config

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis says how to reach Redis: one server, a master behind sentinels, or a cluster.
type Redis struct {
	URL              string        `name:"redis" secret:"url" default:"${redis=redis://127.0.0.1:6379/0}" placeholder:"URL" help:"Redis: redis://user:password@host:port/db (rediss: for TLS), redis+sentinel://user:password@host1:port1,host2:port2/master/db or redis+cluster://user:password@host1:port1,host2:port2.${redishelp=}"`
	SentinelPassword string        `name:"redis-sentinel-password" secret:"" placeholder:"PASSWORD" help:"Password of the sentinels themselves, when they ask for one."`
	DialTimeout      time.Duration `name:"redis-dial-timeout" default:"2s" min:"10ms" max:"1m" help:"Time to connect to Redis."`
	Timeout          time.Duration `name:"redis-timeout" default:"1s" min:"10ms" max:"1m" help:"Time for one Redis call to be written, and for its answer to arrive. A call that takes longer may or may not have happened."`
	Pool             int           `name:"redis-pool" default:"64" min:"1" max:"10000" help:"Connections to each Redis server."`
}

// errRedisURL leaves out what net/url says: its messages quote parts of the URL, and
// with a password that was not percent-encoded, parts of that.
var errRedisURL = errors.New("--redis: must be redis://, rediss://, redis+sentinel:// or redis+cluster:// followed by user:password@host:port/path, special characters in the password percent-encoded")

// Validate checks the URL. Without one there is nothing to check: whoever needs
// Redis finds out by Given.
func (r *Redis) Validate() error {
	if !r.Given() {
		return nil
	}
	_, err := r.Options()
	return err
}

// Given reports whether a Redis is configured.
func (r *Redis) Given() bool { return r.URL != "" }

// Options returns what redis.NewUniversalClient needs. Retries are off: a call
// that timed out may have been executed, and only the caller knows whether to ask again.
func (r *Redis) Options() (*redis.UniversalOptions, error) {
	options := &redis.UniversalOptions{
		SentinelPassword:      r.SentinelPassword,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		DialTimeout:           r.DialTimeout,
		DialerRetries:         1,
		ReadTimeout:           r.Timeout,
		WriteTimeout:          r.Timeout,
		PoolTimeout:           r.Timeout,
		PoolSize:              r.Pool,
	}
	scheme, rest, found := strings.Cut(r.URL, "://")
	if !found || strings.ContainsAny(rest, "?#") {
		return nil, errRedisURL
	}
	if strings.HasPrefix(scheme, "rediss") {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	authority, path, _ := strings.Cut(rest, "/")
	hosts, err := readCredentials(authority, options)
	if err != nil {
		return nil, err
	}
	steps := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	switch scheme {
	case "redis", "rediss":
		err = readSingle(options, hosts, steps)
	case "redis+sentinel", "rediss+sentinel":
		err = readSentinel(options, hosts, steps)
	case "redis+cluster", "rediss+cluster":
		err = readCluster(options, hosts, steps)
	default:
		err = errRedisURL
	}
	if err != nil {
		return nil, err
	}
	return options, nil
}

// readCredentials takes user:password@ off the front and returns the hosts.
func readCredentials(authority string, options *redis.UniversalOptions) (hosts string, err error) {
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return authority, nil
	}
	user, password, _ := strings.Cut(authority[:at], ":")
	if options.Username, err = url.PathUnescape(user); err != nil {
		return "", errRedisURL
	}
	if options.Password, err = url.PathUnescape(password); err != nil {
		return "", errRedisURL
	}
	return authority[at+1:], nil
}

func readSingle(options *redis.UniversalOptions, hosts string, steps []string) error {
	if strings.Contains(hosts, ",") {
		return errors.New("--redis: redis:// takes one host; several are redis+sentinel:// or redis+cluster://")
	}
	return errors.Join(readHosts(options, hosts, "6379"), readDatabase(options, steps))
}

func readSentinel(options *redis.UniversalOptions, hosts string, steps []string) error {
	if len(steps) == 0 {
		return errors.New("--redis: redis+sentinel:// must name the master, as in redis+sentinel://host:26379/mymaster/0")
	}
	options.MasterName = steps[0]
	return errors.Join(readHosts(options, hosts, "26379"), readDatabase(options, steps[1:]))
}

func readCluster(options *redis.UniversalOptions, hosts string, steps []string) error {
	if len(steps) > 0 {
		return errors.New("--redis: a cluster has no database number")
	}
	options.IsClusterMode = true
	return readHosts(options, hosts, "6379")
}

func readDatabase(options *redis.UniversalOptions, steps []string) error {
	switch len(steps) {
	case 0:
		return nil
	case 1:
		db, err := strconv.ParseUint(steps[0], 10, 16)
		if err != nil {
			return errors.New("--redis: the database must be a number from 0 up")
		}
		options.DB = int(db)
		return nil
	default:
		return errRedisURL
	}
}

func readHosts(options *redis.UniversalOptions, hosts, defaultPort string) error {
	for host := range strings.SplitSeq(hosts, ",") {
		address, err := addressOf(host, defaultPort)
		if err != nil {
			return err
		}
		options.Addrs = append(options.Addrs, address)
	}
	return nil
}

// addressOf completes a host, with or without port, to host:port.
func addressOf(host, defaultPort string) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"); err != nil && (bare != host || !strings.Contains(host, ":")) {
		name, port = bare, defaultPort
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || name == "" || strings.ContainsAny(name, " \t@/") {
		return "", errors.New("--redis: every host must be host:port with a port from 1 to 65535")
	}
	return net.JoinHostPort(name, port), nil
}
