package servers

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Redis is a private redis-server: noeviction, no snapshots, no append-only file unless configured.
type Redis struct {
	*Server

	config [][2]string
	leader *Redis
}

// oldestRedis is the first major version that does not replicate loaded scripts, on which the era fence rests.
const oldestRedis = 7

var redisVersion = regexp.MustCompile(`\bv=((\d+)\.\S+)`)

// findRedis looks once per process.
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

// StartRedis starts a redis-server. Lines of its configuration win over those that stand here. With a leader it
// starts as its replica.
func StartRedis(leader *Redis, config ...[2]string) (*Redis, error) {
	path, err := findRedis()
	if err != nil {
		return nil, err
	}
	folder, err := NewFolder("redis")
	if err != nil {
		return nil, err
	}
	s := &Redis{
		Server: &Server{name: "redis-server", folder: folder, program: path},
		leader: leader,
		config: append([][2]string{
			{"maxmemory-policy", "noeviction"},
			{"save", ""},
			{"appendonly", "no"},
			{"repl-diskless-sync-delay", "0"},
			{"enable-debug-command", "local"},
		}, config...),
	}
	s.arguments, s.ping = s.commandLine, s.pong
	if err := s.launch(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Redis) commandLine() ([]string, error) {
	args := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port()), "--dir", s.folder}
	for _, line := range s.config {
		args = append(args, "--"+line[0], line[1])
	}
	if s.leader != nil {
		args = append(args, "--replicaof", fmt.Sprintf("127.0.0.1 %d", s.leader.Port()))
	}
	return args, nil
}

func (s *Redis) pong(ctx context.Context) error {
	client := s.Connect()
	defer client.Close()
	return client.Ping(ctx).Err()
}

// Connect makes a client that asks once and tells what the server said.
func (s *Redis) Connect() *redis.Client {
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
func (s *Redis) URL() string { return "redis://" + s.Addr() }

// Config is the last line of the server's configuration with this key, "" when there is none.
func (s *Redis) Config(key string) string {
	value := ""
	for _, line := range s.config {
		if line[0] == key {
			value = line[1]
		}
	}
	return value
}

// Leader is the server that this one begins to follow at its next start, nil for none.
func (s *Redis) Leader() *Redis { return s.leader }

// SetLeader changes whom the server follows from its next start on. A running server is told by REPLICAOF.
func (s *Redis) SetLeader(leader *Redis) { s.leader = leader }
