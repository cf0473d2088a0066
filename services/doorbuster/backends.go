package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/alecthomas/kong"
	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/redis/go-redis/v9"
)

// backendFlags say where the backends are, for a command that works on them itself.
type backendFlags struct{ config.Backends }

// chosen reports whether the command shall work on the backends: one of them is
// given, and no --url on the command line, which wins over exported variables.
func (f *backendFlags) chosen(parsed *kong.Context) bool {
	return (f.Redis.Given() || f.NATS.Given() || f.MySQL.Given()) && givenBy(parsed, "url") != byFlag
}

// told says on which hosts the command works, without credentials.
func (f *backendFlags) told() string {
	return fmt.Sprintf("redis %s, mysql %s, nats %s", redisHost(&f.Redis), mysqlHost(&f.MySQL), natsHost(&f.NATS))
}

var errSomeBackends = errors.New("give all of --redis, --nats and --mysql (DOORBUSTER_REDIS, DOORBUSTER_NATS and DOORBUSTER_MYSQL), or none of them to ask the API at --url")

// connectTimeout bounds the wait for the backends.
const connectTimeout = 15 * time.Second

// reconciler opens the backends. It makes nothing in them: a ledger without
// tables and a NATS without streams are errors.
func (f *backendFlags) reconciler(ctx context.Context, log *slog.Logger) (r *reconcile.Reconciler, done func(), err error) {
	if !f.Redis.Given() || !f.NATS.Given() || !f.MySQL.Given() {
		return nil, nil, errSomeBackends
	}
	var closers []func()
	closeAll := func() { // not the named result: a return with an error empties that
		for _, closer := range slices.Backward(closers) {
			closer()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()

	options, err := f.Redis.Options()
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewUniversalClient(options)
	closers = append(closers, func() { _ = client.Close() }) // nothing is lost by it
	store := stock.New(client)
	if err := store.Ping(waiting); err != nil {
		return nil, nil, unusable("redis", redisHost(&f.Redis), err)
	}
	books, err := ledger.Open(ctx, ledger.Config{
		DSN: f.MySQL.DSN, MaxOpen: f.MySQL.MaxOpen, DialTimeout: f.MySQL.DialTimeout, Timeout: f.MySQL.Timeout,
	})
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, func() { _ = books.Close() })
	if err := books.CheckSchema(waiting); err != nil {
		return nil, nil, unusable("mysql", mysqlHost(&f.MySQL), err)
	}
	s, err := stream.Open(stream.Config{
		URL: f.NATS.URL, Creds: f.NATS.Creds, Name: "doorbuster-command", Logger: log, Replicas: f.NATS.Replicas,
		ConnectTimeout: f.NATS.ConnectTimeout, PublishTimeout: f.NATS.PublishTimeout,
	})
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, s.Close)
	if err := awaitStream(waiting, s); err != nil {
		return nil, nil, unusable("nats", natsHost(&f.NATS), err)
	}
	r, err = reconcile.New(reconcile.Config{}, store, s, books, nil, log)
	if err != nil {
		return nil, nil, err
	}
	return r, closeAll, nil
}

// unusable tells which backend failed, and where that is, without credentials.
func unusable(backend, host string, err error) error {
	state := "can't be used"
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, stream.ErrNotConnected) {
		state = "can't be reached"
	}
	return fmt.Errorf("%s at %s %s: %w", backend, host, state, err)
}

// awaitStream waits for the connection, which is made in the background.
func awaitStream(ctx context.Context, s *stream.Stream) error {
	for attempt := 1; ; attempt++ {
		err := s.Connected(ctx)
		if err == nil || !errors.Is(err, stream.ErrNotConnected) {
			return err
		}
		pause := time.NewTimer(backoff.Delay(attempt, readyPoll, time.Second))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}
