package stream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNotConnected says that there is no connection to NATS right now. Nothing was sent.
var ErrNotConnected = errors.New("not connected to NATS")

// closeFlushLimit bounds how long Close waits for what was sent last, such as acknowledgements.
const closeFlushLimit = time.Second

// Stream is a connection to NATS and what Doorbuster keeps there. Its methods may
// be called from many goroutines. Each one bounds its own requests (see Config),
// so a context without a deadline is fine.
type Stream struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	cfg Config
	own bool // we made the connection, so we close it

	// replicated says that GRANTS has more than one replica; EnsureTopology finds out.
	replicated atomic.Bool
	turns      turns

	mu      sync.Mutex
	grants  jetstream.Stream // handles, looked up once
	dead    jetstream.Stream
	buckets map[string]jetstream.KeyValue
}

// Open connects to NATS. When no server answers it still returns a Stream, which
// goes on trying; everything fails with ErrNotConnected until then. Only a bad
// configuration is an error.
func Open(cfg Config) (*Stream, error) {
	cfg = cfg.withDefaults()
	if cfg.URL == "" {
		return nil, errors.New("stream: URL is required")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.URL, cfg.Options()...)
	if err != nil {
		if _, ok := errors.AsType[*url.Error](err); ok {
			// It quotes the address, which may hold a password.
			return nil, errors.New("stream: URL is not a list of NATS addresses")
		}
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	s, err := New(nc, cfg)
	if err != nil {
		nc.Close()
		return nil, err
	}
	s.own = true
	return s, nil
}

// New uses a connection of the caller's, made with Config.Options. Close leaves it open.
func New(nc *nats.Conn, cfg Config) (*Stream, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if nc.Opts.ReconnectBufSize != noReconnectBuffer {
		return nil, errors.New("stream: the connection must be made with Config.Options: it must not keep what is published while it is down")
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(cfg.RequestTimeout), jetstream.WithPublishAsyncTimeout(cfg.PublishTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Stream{nc: nc, js: js, cfg: cfg, buckets: map[string]jetstream.KeyValue{}}, nil
}

// Close sends what is still buffered and closes the connection if Open made it.
// Stop consumers, watches and leases first.
func (s *Stream) Close() {
	if s.nc.IsConnected() {
		// An error means that the connection was just lost, which redelivery heals.
		_ = s.nc.FlushTimeout(closeFlushLimit)
	}
	if s.own {
		s.nc.Close()
	}
}

// Reachable reports whether the connection stands. It asks nobody: it is for the
// hot path, to refuse work that could not be published. See Connected.
func (s *Stream) Reachable() bool { return s.nc.IsConnected() }

// Connected asks JetStream for the GRANTS stream and returns nil when it answers:
// the truth for a readiness probe.
func (s *Stream) Connected(ctx context.Context) error {
	_, err := s.grantsInfo(ctx)
	return err
}

// request bounds one question to JetStream, and refuses it while there is no
// connection: it could not be sent.
func (s *Stream) request(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !s.nc.IsConnected() {
		return nil, nil, ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	return ctx, cancel, nil
}

// stream returns the handle of a stream, which it looks up once.
func (s *Stream) stream(ctx context.Context, name string, handle *jetstream.Stream) (jetstream.Stream, error) {
	s.mu.Lock()
	known := *handle
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := s.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*handle = found
	return found, nil
}

func (s *Stream) grantsStream(ctx context.Context) (jetstream.Stream, error) {
	return s.stream(ctx, GrantsStream, &s.grants)
}

func (s *Stream) deadStream(ctx context.Context) (jetstream.Stream, error) {
	return s.stream(ctx, DeadStream, &s.dead)
}

// bucket returns the handle of a bucket, which it looks up once.
func (s *Stream) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	s.mu.Lock()
	known := s.buckets[name]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := s.js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up bucket %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name] = found
	return found, nil
}

// apiCode returns the JetStream error code in err, 0 when there is none.
func apiCode(err error) jetstream.ErrorCode {
	if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok {
		return apiErr.ErrorCode
	}
	if jsErr, ok := errors.AsType[jetstream.JetStreamError](err); ok && jsErr.APIError() != nil {
		return jsErr.APIError().ErrorCode
	}
	return 0
}
