package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/redis/go-redis/v9"
)

// policyTimeout bounds the look at the eviction policy, also where many servers of a
// cluster are asked one after the other.
const policyTimeout = 5 * time.Second

// Stock opens the stock store and watches its health. It does not wait for
// Redis; an eviction policy that may take keys away is warned of.
func (d *Daemon) Stock(ctx context.Context, cfg config.Redis) (*stock.Store, error) {
	return d.openStock(ctx, cfg, d.Health.Add)
}

// OptionalStock is Stock for roles that do most of their work without Redis: that it
// is away does not make the daemon unready.
func (d *Daemon) OptionalStock(ctx context.Context, cfg config.Redis) (*stock.Store, error) {
	return d.openStock(ctx, cfg, d.Health.AddOptional)
}

func (d *Daemon) openStock(ctx context.Context, cfg config.Redis, watch func(string, telemetry.Check)) (*stock.Store, error) {
	options, err := cfg.Options()
	if err != nil {
		return nil, err
	}
	QuietRedis()
	client := redis.NewUniversalClient(options)
	d.OnClose(func() { _ = client.Close() }) // nothing can be done about it, and nothing is lost
	store := stock.New(client)
	watch("redis", store.Ping)
	d.checkPolicy(ctx, store)
	return store, nil
}

func (d *Daemon) checkPolicy(ctx context.Context, store *stock.Store) {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	policy, err := store.EvictionPolicy(ctx)
	switch {
	case err != nil:
		d.Log.WarnContext(ctx, "redis does not tell its eviction policy, or can't be reached; it must be noeviction", "error", err)
	case policy != "noeviction":
		d.Log.ErrorContext(ctx, "redis may evict keys: set maxmemory-policy noeviction; until then every eviction stops the sale it hits",
			"maxmemory_policy", policy)
	}
}

// QuietRedis sends what the Redis client says by itself, a line per failed
// connection, to the log; what it means is told by whoever used the client.
var QuietRedis = sync.OnceFunc(func() { redis.SetLogger(redisLog{}) })

type redisLog struct{}

// Printf logs one line.
func (redisLog) Printf(ctx context.Context, format string, v ...any) {
	slog.DebugContext(ctx, "redis client reports", "text", fmt.Sprintf(format, v...))
}

// Stream opens the stream, waits until what it keeps in NATS exists, and watches its
// health. more changes what the configuration says, and may be nil.
func (d *Daemon) Stream(ctx context.Context, cfg config.NATS, more func(*stream.Config)) (*stream.Stream, error) {
	settings := stream.Config{
		URL: cfg.URL, Creds: cfg.Creds, Name: "doorbuster-" + d.Name, Logger: d.Log, Replicas: cfg.Replicas,
		ConnectTimeout: cfg.ConnectTimeout, PublishTimeout: cfg.PublishTimeout,
	}
	if more != nil {
		more(&settings)
	}
	s, err := stream.Open(settings)
	if err != nil {
		return nil, err
	}
	d.OnClose(s.Close)
	d.Health.Add("nats", s.Connected)
	if err := s.AwaitTopology(ctx); err != nil {
		return nil, fmt.Errorf("prepare the streams: %w", err)
	}
	return s, nil
}

// Identity makes what tells users apart. It reads new keys until Close: users are
// told apart for as long as requests are served, which is longer than ctx.
func (d *Daemon) Identity(ctx context.Context, cfg config.Identity) (web.Identity, error) {
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	d.OnClose(end)
	settled := context.AfterFunc(ctx, end) // it does not begin for longer than ctx
	defer settled()
	return web.NewIdentity(reading, web.IdentityOptions{
		JWTSecret: cfg.JWTSecret, JWKS: cfg.JWKS, JWTIssuer: cfg.JWTIssuer, JWTAudience: cfg.JWTAudience,
		TrustUserHeader: cfg.TrustUserHeader,
	})
}
