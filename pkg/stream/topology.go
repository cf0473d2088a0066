package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of making the topology. They don't go away by trying again.
var (
	// ErrServerTooOld says that the server lacks what we need.
	ErrServerTooOld = errors.New("nats-server is older than 2.11")
	// ErrTopology says that the server refuses our settings: something of the name, or
	// on our subjects, exists with others that can't be changed, or the server can't
	// provide them (replicas without a cluster).
	ErrTopology = errors.New("the server refuses our settings")
)

const (
	// duplicateWindow is how long the server remembers a Msg-Id. A batch is
	// published again within seconds; its fence is what holds later.
	duplicateWindow = 2 * time.Minute
	// defaultEventsMaxAge is that of a stream nobody asked for anything else.
	defaultEventsMaxAge = 7 * 24 * time.Hour
	// leaseMarkerTTL is how long the mark of an expired lease stays.
	leaseMarkerTTL = time.Minute
)

// MinPayload is the message size in bytes that NATS must allow: that of the
// largest batch. The default of nats-server is 1 MiB.
const MinPayload = 512 << 10

// EnsureTopology makes what is missing in NATS and corrects what differs, of the
// settings we depend on. It leaves alone what operators may choose: placement,
// compression, size limits (they refuse new messages and never remove old ones), more
// replicas than configured. It is idempotent, and several services may call it at once.
//
// Errors: ErrNotConnected, ErrServerTooOld, ErrTopology, or what the server says.
// See AwaitTopology.
func (s *Stream) EnsureTopology(ctx context.Context) error {
	if err := s.Supported(); err != nil {
		return err
	}
	if most := s.nc.MaxPayload(); most < MinPayload {
		return fmt.Errorf("%w: its max_payload is %d bytes, a batch may need %d", ErrTopology, most, MinPayload)
	}
	for _, want := range s.streamConfigs() {
		if err := s.ensureStream(ctx, want); err != nil {
			return err
		}
	}
	info, err := s.grantsInfo(ctx)
	if err != nil {
		return err
	}
	s.replicated.Store(info.Config.Replicas > 1)
	_, err = s.ensureOrdersConsumer(ctx)
	return err
}

// AwaitTopology calls EnsureTopology until it succeeds, fails for good, or ctx
// ends. The error then says what the last attempt failed with.
func (s *Stream) AwaitTopology(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := s.EnsureTopology(ctx)
		if err == nil || errors.Is(err, ErrServerTooOld) || errors.Is(err, ErrTopology) {
			return err
		}
		if attempt%waitLogEvery == 1 {
			s.cfg.Logger.WarnContext(ctx, "waiting for nats", "error", err)
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			return err
		}
	}
}

// waitLogEvery is how many attempts AwaitTopology makes per line in the log: about
// one every ten seconds.
const waitLogEvery = 12

// Supported returns ErrServerTooOld when the connected server is older than 2.11,
// the first with a life time per message, and ErrNotConnected when there is none.
func (s *Stream) Supported() error {
	if !s.nc.IsConnected() {
		return ErrNotConnected
	}
	return supportedVersion(s.nc.ConnectedServerVersion())
}

func supportedVersion(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("read the version %q of nats-server: %w", version, err)
	}
	if major < 2 || major == 2 && minor < 11 {
		return fmt.Errorf("%w: it is %s", ErrServerTooOld, version)
	}
	return nil
}

// streamConfigs are the streams, and the buckets, which are streams too.
func (s *Stream) streamConfigs() []jetstream.StreamConfig {
	// A full log refuses what is new and never drops what is old: a fence must
	// outlive its sale, and the reconciler reads the log.
	log := jetstream.StreamConfig{
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: -1,
		MaxConsumers:      -1,
		MaxMsgSize:        -1,
		Duplicates:        duplicateWindow,
		Replicas:          s.cfg.Replicas,
		DenyDelete:        true, // an operator may purge a sale, but not pick out messages
	}
	grants := log
	grants.Name = GrantsStream
	grants.Description = "Doorbuster: batches of grants and the fences of their generations"
	grants.Subjects = []string{grantsSubject(anySale), fenceSubject(anySale)}
	// Only the leader answers questions about fences; a follower may be behind.
	grants.AllowDirect = false
	// A stream that is made anew counts on from where no earlier one ever was, so
	// that no batch of an earlier one finds the sequence of its fence again.
	grants.FirstSeq = cmp.Or(s.cfg.FirstSeq, uint64(time.Now().UnixMicro()))

	dead := log
	dead.Name = DeadStream
	dead.Description = "Doorbuster: dead letters of the order workers"
	dead.Subjects = []string{deadSubject(anySale)}
	dead.AllowDirect = false

	events := log
	events.Name = EventsStream
	events.Description = "Doorbuster: what happened to orders"
	events.Subjects = []string{eventsPrefix + anyKind}
	events.AllowDirect = true
	// The ledger has the truth, so old events make room for new ones: a full stream
	// must not keep deliveries waiting.
	events.Discard = jetstream.DiscardOld
	events.MaxAge = cmp.Or(s.cfg.EventsMaxAge, defaultEventsMaxAge)

	bucket := log
	bucket.MaxMsgsPerSubject = 1
	bucket.AllowRollup = true
	bucket.AllowDirect = true

	sales := bucket
	sales.Name = bucketStream(SalesBucket)
	sales.Description = "Doorbuster: sale definitions"
	sales.Subjects = []string{bucketKey(SalesBucket, ">")}

	leases := bucket
	leases.Name = bucketStream(LeasesBucket)
	leases.Description = "Doorbuster: leases that die with their holders"
	leases.Subjects = []string{bucketKey(LeasesBucket, ">")}
	// A follower that lags would call a lease held that was just given back.
	leases.AllowDirect = false
	leases.AllowMsgTTL = true
	leases.SubjectDeleteMarkerTTL = leaseMarkerTTL

	control := bucket
	control.Name = bucketStream(ControlBucket)
	control.Description = "Doorbuster: flow control of the grab processes"
	control.Subjects = []string{bucketKey(ControlBucket, ">")}
	// An operator who reads what was just written must not be told an older one.
	control.AllowDirect = false

	return []jetstream.StreamConfig{grants, dead, events, sales, leases, control}
}

// ensureStream makes or corrects one stream.
func (s *Stream) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	found, err := s.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = s.js.CreateStream(ctx, want); err == nil {
			return nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return settingsError("stream "+want.Name, err)
		}
		found, err = s.js.Stream(ctx, want.Name) // another service was faster
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	have := found.CachedInfo().Config
	if want.Name == EventsStream && s.cfg.EventsMaxAge == 0 {
		want.MaxAge = have.MaxAge
	}
	corrected := withOurSettings(have, want)
	if reflect.DeepEqual(have, corrected) {
		return nil
	}
	if _, err := s.js.UpdateStream(ctx, corrected); err != nil {
		return settingsError("stream "+want.Name, err)
	}
	return nil
}

// withOurSettings is have, with the settings we depend on taken from want.
func withOurSettings(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	have.Subjects = slices.Clone(want.Subjects)
	have.Retention = want.Retention
	have.Discard = want.Discard
	have.DiscardNewPerSubject = false
	have.Storage = want.Storage
	have.MaxAge = want.MaxAge
	have.MaxMsgSize = want.MaxMsgSize
	have.MaxMsgsPerSubject = want.MaxMsgsPerSubject
	have.Duplicates = max(have.Duplicates, want.Duplicates)
	// Never down: one service with another setting must not take a replica away.
	have.Replicas = max(have.Replicas, want.Replicas)
	have.NoAck = false
	have.DenyDelete = want.DenyDelete
	have.AllowRollup = want.AllowRollup
	have.AllowDirect = want.AllowDirect
	have.AllowMsgTTL = want.AllowMsgTTL
	have.SubjectDeleteMarkerTTL = want.SubjectDeleteMarkerTTL
	return have
}

// ensureOrdersConsumer makes or corrects the consumer of the order workers. It has
// no filter: the workers record which sequences they have seen, fences included, so
// that their progress has no holes.
func (s *Stream) ensureOrdersConsumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	for attempt := 1; ; attempt++ {
		want, err := s.ordersConsumer(ctx)
		if err != nil {
			return nil, err
		}
		consumer, err := s.js.CreateOrUpdateConsumer(ctx, GrantsStream, want)
		switch {
		case err == nil:
			return consumer, nil
		case apiCode(err) == jetstream.JSErrCodeConsumerCreate && attempt == 1:
			// RewindOrders may have made it since we looked; then it begins elsewhere.
		default:
			return nil, settingsError("consumer "+OrdersConsumer, err)
		}
	}
}

// ordersConsumer is the consumer as we want it. Where it begins, which can't be
// changed, is where the one that exists begins; so is its AckWait when none is configured.
func (s *Stream) ordersConsumer(ctx context.Context) (jetstream.ConsumerConfig, error) {
	want := jetstream.ConsumerConfig{
		Durable:       OrdersConsumer,
		Description:   "Doorbuster: order workers",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       cmp.Or(s.cfg.AckWait, defaultAckWait),
		MaxAckPending: s.cfg.MaxAckPending,
		MaxDeliver:    -1, // the order worker decides when to give up, not the server
	}
	found, err := s.js.Consumer(ctx, GrantsStream, OrdersConsumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return want, nil
	case err != nil:
		return want, fmt.Errorf("look up consumer %s: %w", OrdersConsumer, err)
	}
	have := found.CachedInfo().Config
	want.DeliverPolicy, want.OptStartSeq = have.DeliverPolicy, have.OptStartSeq
	want.AckWait = cmp.Or(s.cfg.AckWait, have.AckWait)
	return want, nil
}

// settingsError tells settings the server refuses from a server that can't right now.
func settingsError(what string, err error) error {
	switch apiCode(err) {
	case codeStreamInvalidConfig, codeStreamReplicasNotSupported, codeSubjectOverlap,
		codeStreamUpdate, jetstream.JSErrCodeConsumerCreate, jetstream.JSErrCodeConsumerAlreadyExists:
		return fmt.Errorf("%s: %w: %w", what, ErrTopology, err)
	default:
		return fmt.Errorf("make or update %s: %w", what, err)
	}
}

// Error codes of nats-server (server/errors.json) that nats.go has no name for.
const (
	codeStreamInvalidConfig        jetstream.ErrorCode = 10052
	codeSubjectOverlap             jetstream.ErrorCode = 10065
	codeStreamUpdate               jetstream.ErrorCode = 10069
	codeStreamReplicasNotSupported jetstream.ErrorCode = 10074
	codeDuplicateInProcess         jetstream.ErrorCode = 10158
)
