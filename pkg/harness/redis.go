package harness

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
	"github.com/redis/go-redis/v9"
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
	redis *servers.Redis
}

// redisSettings are what the options change.
type redisSettings struct {
	config [][2]string
	leader *servers.Redis
}

// RedisOption changes how Redis starts a server.
type RedisOption func(*redisSettings)

// WithAOF has the server write each change to its append-only file before it answers.
func WithAOF() RedisOption {
	return func(s *redisSettings) {
		WithConfig("appendonly", "yes")(s)
		WithConfig("appendfsync", "always")(s)
	}
}

// WithConfig sets one line of the server's configuration; it wins over the harness's own.
func WithConfig(key, value string) RedisOption {
	return func(s *redisSettings) { s.config = append(s.config, [2]string{key, value}) }
}

// ReplicaOf makes the server a replica of leader; it is returned once its first copy is complete.
func ReplicaOf(leader *RedisServer) RedisOption {
	return func(s *redisSettings) { s.leader = leader.redis }
}

// Redis starts a redis-server for this test.
func Redis(t testing.TB, options ...RedisOption) *RedisServer {
	t.Helper()
	var settings redisSettings
	for _, option := range options {
		option(&settings)
	}
	started, err := servers.StartRedis(settings.leader, settings.config...)
	if err != nil {
		t.Fatal(err)
	}
	s := &RedisServer{server: ownedBy(t, started.Server), redis: started}
	if settings.leader != nil {
		s.waitForLink()
	}
	return s
}

// URL is the server's address as a redis:// URL.
func (s *RedisServer) URL() string { return s.redis.URL() }

// Client returns a client of its own, without retries, closed when the test ends.
func (s *RedisServer) Client() *redis.Client {
	client := s.redis.Connect()
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Promote makes a replica a leader (REPLICAOF NO ONE), as a failover does.
func (s *RedisServer) Promote() {
	s.t.Helper()
	s.replicaOf("NO", "ONE")
	s.redis.SetLeader(nil)
}

// Follow makes the server a replica of leader, dropping its own data, and returns once the copy is complete.
func (s *RedisServer) Follow(leader *RedisServer) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(leader.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.replicaOf(host, port)
	s.redis.SetLeader(leader.redis)
	s.waitForLink()
}

func (s *RedisServer) replicaOf(host, port string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redisCallLimit)
	defer cancel()
	client := s.redis.Connect()
	defer client.Close()
	if err := client.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		s.t.Fatalf("REPLICAOF %s %s: %v", host, port, err)
	}
}

func (s *RedisServer) waitForLink() {
	s.t.Helper()
	client := s.redis.Connect()
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
