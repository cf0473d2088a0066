package embedded

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Redis is a Redis inside this process.
type Redis struct {
	mini *miniredis.Miniredis
	url  string
}

// StartRedis starts an empty Redis.
func StartRedis() (*Redis, error) {
	password := rand.Text()
	mini := miniredis.NewMiniRedis()
	mini.RequireAuth(password)
	if err := mini.Start(); err != nil {
		return nil, fmt.Errorf("start the embedded redis: %w", err)
	}
	mini.ClockTTL(true)
	if err := mini.Server().Register("CONFIG", config); err != nil {
		mini.Close()
		return nil, fmt.Errorf("start the embedded redis: %w", err)
	}
	return &Redis{mini: mini, url: "redis://:" + password + "@" + mini.Addr() + "/0"}, nil
}

// config answers CONFIG GET maxmemory-policy, which miniredis lacks, truly: it
// never evicts.
func config(c *server.Peer, _ string, args []string) {
	if len(args) != 2 || !strings.EqualFold(args[0], "get") {
		c.WriteError("ERR the embedded redis has no such CONFIG")
		return
	}
	if args[1] != "maxmemory-policy" {
		c.WriteMapLen(0)
		return
	}
	c.WriteMapLen(1)
	c.WriteBulk(args[1])
	c.WriteBulk("noeviction")
}

// URL is its address with the password.
func (r *Redis) URL() string { return r.url }

// Wipe takes everything away, as a FLUSHALL does. It is how the demo breaks it.
func (r *Redis) Wipe() { r.mini.FlushAll() }

// Close stops it.
func (r *Redis) Close() { r.mini.Close() }
