package harness

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// redisCallLimit bounds the harness's own questions to Redis.
	redisCallLimit = 5 * time.Second
	// followLimit bounds a replica's first full copy.
	followLimit = 30 * time.Second
)

// RedisServer is a private redis-server: noeviction, no snapshots, no append-only file unless asked for.
type RedisServer struct {
	server
	config [][2]string
	leader *RedisServer
}

// RedisOption changes how Redis starts a server.
type RedisOption func(*RedisServer)

// WithAOF has the server write each change to its append-only file before it answers.
func WithAOF() RedisOption {
	return func(s *RedisServer) {
		WithConfig("appendonly", "yes")(s)
		WithConfig("appendfsync", "always")(s)
	}
}

// WithConfig sets one line of the server's configuration; it wins over the harness's own.
func WithConfig(key, value string) RedisOption {
	return func(s *RedisServer) { s.config = append(s.config, [2]string{key, value}) }
}

// ReplicaOf makes the server a replica of leader; it is returned once its first copy is complete.
func ReplicaOf(leader *RedisServer) RedisOption {
	return func(s *RedisServer) { s.leader = leader }
}

// oldestRedis is the first major version that does not replicate loaded scripts, on which the era fence rests.
const oldestRedis = 7

var redisVersion = regexp.MustCompile(`\bv=((\d+)\.\S+)`)

// findRedis looks once per test binary.
var findRedis = sync.OnceValues(func() (string, error) {
	path, err := redisProgram.path()
	if err != nil {
		return "", err
	}
	output, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return path, checkRedisVersion(string(output))
})

// checkRedisVersion reads what redis-server --version prints.
func checkRedisVersion(output string) error {
	match := redisVersion.FindStringSubmatch(output)
	if match == nil {
		return fmt.Errorf("redis-server does not tell its version: %q", output)
	}
	if major, err := strconv.Atoi(match[2]); err != nil || major < oldestRedis {
		return fmt.Errorf("redis-server is version %s: version %d or newer is needed", match[1], oldestRedis)
	}
	return nil
}

// Redis starts a redis-server for this test.
func Redis(t testing.TB, options ...RedisOption) *RedisServer {
	t.Helper()
	s := newRedis(t, options...)
	s.ownedBy(t)
	if s.leader != nil {
		s.waitForLink()
	}
	return s
}

func newRedis(t testing.TB, options ...RedisOption) *RedisServer {
	t.Helper()
	path, err := findRedis()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := newFolder("redis")
	if err != nil {
		t.Fatal(err)
	}
	s := &RedisServer{config: [][2]string{
		{"maxmemory-policy", "noeviction"},
		{"save", ""},
		{"appendonly", "no"},
		{"repl-diskless-sync-delay", "0"},
		{"enable-debug-command", "local"},
	}}
	s.name, s.folder, s.program = "redis-server", folder, path
	s.arguments, s.ping = s.commandLine, s.pong
	for _, option := range options {
		option(s)
	}
	return s
}

func (s *RedisServer) commandLine() ([]string, error) {
	args := []string{"--bind", "127.0.0.1", "--port", fmt.Sprint(s.port.number), "--dir", s.folder}
	for _, line := range s.config {
		args = append(args, "--"+line[0], line[1])
	}
	if s.leader != nil {
		args = append(args, "--replicaof", fmt.Sprintf("127.0.0.1 %d", s.leader.port.number))
	}
	return args, nil
}

func (s *RedisServer) pong(ctx context.Context) error {
	client := s.connect()
	defer client.Close()
	return client.Ping(ctx).Err()
}

// connect makes a client that asks once and tells what the server said.
func (s *RedisServer) connect() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     s.Addr(),
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DialTimeout:              pingLimit,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// URL is the server's address as a redis:// URL.
func (s *RedisServer) URL() string {
	return "redis://" + s.Addr()
}

// Client returns a client of its own, without retries, closed when the test ends.
func (s *RedisServer) Client() *redis.Client {
	client := s.connect()
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Promote makes a replica a leader (REPLICAOF NO ONE), as a failover does.
func (s *RedisServer) Promote() {
	s.t.Helper()
	s.replicaOf("NO", "ONE")
	s.leader = nil
}

// Follow makes the server a replica of leader, dropping its own data, and returns once the copy is complete.
func (s *RedisServer) Follow(leader *RedisServer) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(leader.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.replicaOf(host, port)
	s.leader = leader
	s.waitForLink()
}

func (s *RedisServer) replicaOf(host, port string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redisCallLimit)
	defer cancel()
	client := s.connect()
	defer client.Close()
	if err := client.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		s.t.Fatalf("REPLICAOF %s %s: %v", host, port, err)
	}
}

func (s *RedisServer) waitForLink() {
	s.t.Helper()
	client := s.connect()
	defer client.Close()
	Eventually(s.t, followLimit, "replica in step with its leader", func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), redisCallLimit)
		defer cancel()
		info, err := client.Info(ctx, "replication").Result()
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(info, "master_link_status:up"), info
	})
}
