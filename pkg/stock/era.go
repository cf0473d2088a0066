package stock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/doorbuster/doorbuster/lua"
	"github.com/redis/go-redis/v9"
)

// Minter loads eras. Only a reconciler has one.
type Minter struct {
	store *Store
	mu    sync.Mutex
	known map[serverLife]lua.Era
}

// NewMinter returns a minter for the servers behind a store.
func NewMinter(s *Store) *Minter {
	return &Minter{store: s, known: make(map[serverLife]lua.Era)}
}

// serverLife is one run of one server in one role history.
type serverLife struct {
	runID, replid string
}

// Era returns the era of the server that holds the sale now: the one this
// minter loaded there before, if the server still has it, or a new one.
func (m *Minter) Era(ctx context.Context, saleID string) (lua.Era, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.store.master(ctx, KeysOf(saleID).Meta())
	if err != nil {
		return "", err
	}
	// One connection, so that the answers and the scripts are of one server.
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	life, err := readLife(ctx, conn)
	if err != nil {
		return "", err
	}
	if era, ok := m.known[life]; ok && life.runID != "" {
		if loaded, err := allLoaded(ctx, conn, era); err != nil || loaded {
			return era, err
		}
	}
	era := lua.NewEra(life.replid)
	for _, script := range lua.In(era).All() {
		sha, err := conn.ScriptLoad(ctx, script.Source).Result()
		if err != nil {
			return "", fmt.Errorf("load scripts of a new era: %w", err)
		}
		if sha != script.SHA {
			return "", fmt.Errorf("load scripts of a new era: server names %s what we name %s", sha, script.SHA)
		}
	}
	m.known[life] = era
	return era, nil
}

func allLoaded(ctx context.Context, conn *redis.Conn, era lua.Era) (bool, error) {
	var hashes []string
	for _, script := range lua.In(era).All() {
		hashes = append(hashes, script.SHA)
	}
	exists, err := conn.ScriptExists(ctx, hashes...).Result()
	if err != nil {
		return false, fmt.Errorf("look for scripts: %w", err)
	}
	for _, ok := range exists {
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// master returns the client of the node that holds key.
func (s *Store) master(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.redis.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("find master of %s: %w", key, err)
		}
		return node, nil
	default:
		return nil, fmt.Errorf("redis client %T is neither a single server, Sentinel nor Cluster client", c)
	}
}

// minRedis is the first version that keeps loaded scripts from replicas.
const minRedis = 7

// readLife asks a server who it is.
func readLife(ctx context.Context, conn *redis.Conn) (serverLife, error) {
	info, err := conn.Info(ctx).Result()
	if err != nil {
		return serverLife{}, fmt.Errorf("read server info: %w", err)
	}
	return lifeOf(info)
}

// lifeOf reads a server's INFO. A server that does not even tell its version
// (miniredis) has an empty life; any other must be a master that tells what the
// fence needs.
func lifeOf(info string) (serverLife, error) {
	fields := infoFields(info)
	version, ok := fields["redis_version"]
	if !ok {
		return serverLife{}, nil
	}
	if role := fields["role"]; role != "master" {
		return serverLife{}, fmt.Errorf("redis server is a %s, not a master", role)
	}
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < minRedis {
		return serverLife{}, fmt.Errorf("redis is version %s: must be %d.0 or later", version, minRedis)
	}
	life := serverLife{runID: fields["run_id"], replid: fields["master_replid"]}
	if life.runID == "" || life.replid == "" {
		return serverLife{}, errors.New("redis does not tell its run_id and master_replid: a failover could not be noticed")
	}
	return life, nil
}

func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// ErrPolicyUnknown says that the server did not tell its eviction policy.
var ErrPolicyUnknown = errors.New("redis does not tell its maxmemory-policy")

// EvictionPolicy returns the server's maxmemory-policy. Anything but
// "noeviction" may take keys away under memory pressure: selling then stops
// and the sale is restored again and again.
func (s *Store) EvictionPolicy(ctx context.Context) (string, error) {
	node, err := s.master(ctx, prefix)
	if err != nil {
		return "", err
	}
	found, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPolicyUnknown, err)
	}
	policy, ok := found["maxmemory-policy"]
	if !ok {
		return "", ErrPolicyUnknown
	}
	return policy, nil
}
