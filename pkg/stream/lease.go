package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrHeld says that somebody else holds the lease.
var ErrHeld = errors.New("the lease is held by another")

// Bounds of a lease's time to live. The server counts in whole seconds.
const (
	LeaseTTLMin = time.Second
	LeaseTTLMax = time.Hour
)

var leaseName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// Lease is the right to do something that should be done once at a time. It dies
// with its holder: nobody renews it then, and the server removes it after its time to live. It
// saves work and keeps order; it is not a proof (a holder may be frozen and not
// know yet that it lost the lease). What must never happen twice is guarded by a fence.
type Lease struct {
	stream *Stream
	name   string
	ttl    time.Duration
	token  []byte

	lost    chan struct{}
	cancel  context.CancelFunc // ends the renewal
	renewal sync.WaitGroup

	mu       sync.Mutex
	revision uint64 // of our entry in the bucket
}

// Acquire takes a lease, or returns ErrHeld. ttl is LeaseTTLMin to LeaseTTLMax in
// whole seconds. The lease is renewed in the background, three times per ttl, until Release or
// until it is lost; ctx is for acquiring only.
func (s *Stream) Acquire(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	switch {
	case !leaseName.MatchString(name):
		return nil, fmt.Errorf("acquire lease %q: the name must be 1 to 128 of A-Z a-z 0-9 _ -", name)
	case ttl < LeaseTTLMin || ttl > LeaseTTLMax || ttl%time.Second != 0:
		return nil, fmt.Errorf("acquire lease %s: ttl must be %s to %s in whole seconds, not %s", name, LeaseTTLMin, LeaseTTLMax, ttl)
	}
	l := &Lease{stream: s, name: name, ttl: ttl, token: []byte(rand.Text()), lost: make(chan struct{})}
	taken := time.Now()
	if err := l.take(ctx); err != nil {
		return nil, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	renewCtx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.renewal.Go(func() { l.keep(renewCtx, taken) })
	return l, nil
}

// Lost is closed when the lease could not be renewed in time, or somebody else
// has it. It is not closed by Release.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Release gives the lease back and stops the renewal. Releasing a lost lease, or
// one twice, does nothing. If it fails the lease ends after its time to live.
func (l *Lease) Release(ctx context.Context) error {
	l.cancel()
	l.renewal.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revision == 0 {
		return nil
	}
	ctx, cancel, err := l.stream.request(ctx)
	if err == nil {
		defer cancel()
		err = l.purge(ctx)
	}
	if err != nil {
		return fmt.Errorf("release lease %s: %w", l.name, err)
	}
	l.revision = 0
	return nil
}

// purge removes our entry. A renewal that was cut short by Release may have given
// it another revision; then the second try has the right one.
func (l *Lease) purge(ctx context.Context) error {
	bucket, err := l.stream.bucket(ctx, LeasesBucket)
	if err != nil {
		return err
	}
	for range 2 {
		err = bucket.Purge(ctx, l.name, jetstream.LastRevision(l.revision), jetstream.PurgeTTL(leaseMarkerTTL))
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
		if adopted := l.adopt(ctx); adopted != nil {
			if errors.Is(adopted, ErrHeld) {
				return nil // no longer ours
			}
			return adopted
		}
	}
	return err
}

// take creates our entry. When the answer was lost it looks whether it is there.
func (l *Lease) take(ctx context.Context) error {
	ctx, cancel, err := l.stream.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	bucket, err := l.stream.bucket(ctx, LeasesBucket)
	if err != nil {
		return err
	}
	l.revision, err = bucket.Create(ctx, l.name, l.token, jetstream.KeyTTL(l.ttl))
	if err == nil {
		return nil
	}
	if code := apiCode(err); code == jetstream.JSErrCodeStreamWrongLastSequence ||
		code == jetstream.JSErrCodeStreamWrongLastSequenceConstant {
		return ErrHeld
	}
	again, cancelAgain, requestErr := l.stream.request(context.WithoutCancel(ctx))
	if requestErr != nil {
		return err
	}
	defer cancelAgain()
	if l.adopt(again) != nil {
		return err
	}
	return nil
}

// keep renews the lease until ctx ends or the lease is lost. Time to live counts
// from before a renewal was sent, so we never believe longer than the server does.
func (l *Lease) keep(ctx context.Context, renewed time.Time) {
	ticker := time.NewTicker(l.ttl / 3)
	defer ticker.Stop()
	expiry := time.NewTimer(time.Until(renewed.Add(l.ttl)))
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-expiry.C:
			close(l.lost)
			return
		case <-ticker.C:
		}
		sent := time.Now()
		err := l.renew(ctx, renewed.Add(l.ttl))
		switch {
		case err == nil:
			renewed = sent
			expiry.Reset(time.Until(renewed.Add(l.ttl)))
		case errors.Is(err, ErrHeld):
			l.mu.Lock()
			l.revision = 0
			l.mu.Unlock()
			close(l.lost)
			return
		}
		// Any other failure: the next tick tries again, until the lease is over.
	}
}

// renew writes our entry again with a fresh time to live.
func (l *Lease) renew(ctx context.Context, deadline time.Time) error {
	ctx, cancel, err := l.stream.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	ctx, cancelAtEnd := context.WithDeadline(ctx, deadline)
	defer cancelAtEnd()
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.write(ctx)
	if apiCode(err) != jetstream.JSErrCodeStreamWrongLastSequence {
		return err
	}
	if err := l.adopt(ctx); err != nil {
		return err
	}
	return l.write(ctx)
}

// write puts our entry in the place of our last one. nats.go's KeyValue.Update
// can't: it writes an entry that lives for ever. l.mu is held.
func (l *Lease) write(ctx context.Context) error {
	ack, err := l.stream.js.Publish(ctx, bucketKey(LeasesBucket, l.name), l.token,
		jetstream.WithExpectLastSequencePerSubject(l.revision),
		jetstream.WithMsgTTL(l.ttl),
		jetstream.WithRetryAttempts(0))
	if err != nil {
		return err
	}
	l.revision = ack.Sequence
	return nil
}

// adopt looks whose the entry is: ours with another revision, when the answer to an
// earlier write was lost, or another's (ErrHeld).
func (l *Lease) adopt(ctx context.Context) error {
	bucket, err := l.stream.bucket(ctx, LeasesBucket)
	if err != nil {
		return err
	}
	entry, err := bucket.Get(ctx, l.name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return ErrHeld // it ended, and is anybody's
	}
	if err != nil {
		return err
	}
	if string(entry.Value()) != string(l.token) {
		return ErrHeld
	}
	l.revision = entry.Revision()
	return nil
}
