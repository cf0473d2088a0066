package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/backoff"
)

// changeAttempts bounds how often a change of an entry is tried when others
// change it at the same time.
const changeAttempts = 20

// change reads an entry of a bucket (nil when there is none) and has write store
// another on the condition that it still is the same; if not, it tries again.
func (s *Stream) change(ctx context.Context, bucket, key string,
	write func(context.Context, jetstream.KeyValue, jetstream.KeyValueEntry) error) error {
	var failure error
	for attempt := 1; attempt <= changeAttempts; attempt++ {
		failure = s.changeOnce(ctx, bucket, key, write)
		switch apiCode(failure) {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		default:
			return failure
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			break
		}
	}
	return failure
}

func (s *Stream) changeOnce(ctx context.Context, bucket, key string,
	write func(context.Context, jetstream.KeyValue, jetstream.KeyValueEntry) error) error {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	kv, err := s.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	have, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		have, err = nil, nil
	}
	if err != nil {
		return err
	}
	return write(ctx, kv, have)
}

// watch follows a bucket: it tells of every entry there is, then of every change,
// and all of it again after a lost connection.
type watch struct {
	stream *Stream
	bucket string
	take   func(jetstream.KeyValueEntry)
	loaded func(seen map[string]bool) // all there was has been told: these keys
	ready  chan struct{}
	opened bool // ready is closed
}

func newWatch(s *Stream, bucket string, take func(jetstream.KeyValueEntry), loaded func(seen map[string]bool)) watch {
	return watch{stream: s, bucket: bucket, take: take, loaded: loaded, ready: make(chan struct{})}
}

// Ready is closed once everything there was has been told.
func (w *watch) Ready() <-chan struct{} { return w.ready }

// Run watches until ctx ends. While NATS is away it tries again with growing delays.
func (w *watch) Run(ctx context.Context) {
	// A reconnect may be to a server that knows nothing of our watch, which would
	// notice only seconds later. So each one begins a new watch.
	reconnects := w.stream.nc.StatusChanged(nats.CONNECTED)
	defer w.stream.nc.RemoveStatusListener(reconnects)
	failures := 0
	for ctx.Err() == nil {
		err := w.follow(ctx, reconnects, func() { failures = 0 })
		if err == nil || ctx.Err() != nil {
			continue
		}
		failures++
		w.stream.cfg.Logger.Warn("watch of a bucket interrupted", "bucket", w.bucket, "failures", failures, "error", err)
		backoff.Pause(ctx, backoff.Delay(failures, retryBase, retryMax))
	}
}

// errWatchEnded says that nats.go closed a watch by itself.
var errWatchEnded = errors.New("the watch ended")

// follow runs one watch, until ctx ends, the connection was lost and is back
// (nil), or something fails.
func (w *watch) follow(ctx context.Context, reconnects <-chan nats.Status, alive func()) error {
	watcher, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// It fails when the watch has ended already, which is as good. The callback
		// may be blocked in a send: reading on until the channel is closed frees it.
		_ = watcher.Stop()
		for range watcher.Updates() {
		}
	}()
	seen := map[string]bool{} // in this watch's initial load; nil once it is complete
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnects:
			return nil
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return errWatchEnded
			case entry == nil:
				w.complete(seen)
				seen = nil
				alive()
			default:
				w.take(entry)
				if seen != nil {
					seen[entry.Key()] = true
				}
			}
		}
	}
}

func (w *watch) open(ctx context.Context) (jetstream.KeyWatcher, error) {
	lookup, cancel, err := w.stream.request(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	bucket, err := w.stream.bucket(lookup, w.bucket)
	if err != nil {
		return nil, err
	}
	watcher, err := bucket.WatchAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch bucket %s: %w", w.bucket, err)
	}
	return watcher, nil
}

// complete ends an initial load.
func (w *watch) complete(seen map[string]bool) {
	w.loaded(seen)
	if !w.opened {
		w.opened = true
		close(w.ready)
	}
}
