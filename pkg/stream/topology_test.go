package stream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

func TestTheTopologyIsMadeOnceAndStays(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	id := get[int64](t)(s.StreamID(t.Context()))
	m := &maker{saleID: "s1", process: "p", fence: begin(t, s, "s1"), grants: 1}
	m.publish(t, s)
	for range 3 {
		must(t, s.EnsureTopology(t.Context()))
	}
	var status stream.Status
	harness.Eventually(t, wait, "the consumer counts both messages", func() (bool, string) {
		status = get[stream.Status](t)(s.Info(t.Context()))
		return status.Pending == 2, fmt.Sprintf("%+v", status)
	})
	if status.StreamID != id || status.Messages != 2 || status.FirstSeq != 1 || status.LastSeq != 2 ||
		status.Bytes == 0 || status.LastTime.IsZero() || status.Replicas != 1 {
		t.Fatalf("the status is %+v", status)
	}
	server.Kill()
	server.Start()
	harness.Eventually(t, wait, "the client is back", func() (bool, string) { return s.Reachable(), "not reachable" })
	if again := get[int64](t)(s.StreamID(t.Context())); again != id {
		t.Fatalf("the identity is %d after a restart, and was %d", again, id)
	}
}

func TestServicesThatStartTogetherMakeOneTopology(t *testing.T) {
	server := harness.NATS(t)
	failures := make(chan error)
	const services = 6
	for range services {
		s := openOnly(t, server.URL())
		go func() { failures <- s.AwaitTopology(context.Background()) }()
	}
	for range services {
		must(t, <-failures)
	}
}

func TestAnIdentityIsNewWhenTheStreamIs(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	before := get[int64](t)(s.StreamID(t.Context()))
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteStream(t.Context(), stream.GrantsStream))
	must(t, s.EnsureTopology(t.Context()))
	if after := get[int64](t)(s.StreamID(t.Context())); after <= before {
		t.Fatalf("the identity is %d, and was %d", after, before)
	}
}

func TestDangerousSettingsAreCorrectedAndOthersLeftAlone(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	grants := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream))
	bad := grants.CachedInfo().Config
	bad.MaxAge, bad.Duplicates = time.Hour, time.Minute
	bad.MaxMsgsPerSubject = 5
	bad.Discard = jetstream.DiscardOld
	bad.AllowDirect = true
	bad.MaxBytes = 1 << 30
	bad.Compression = jetstream.S2Compression
	bad.Description = "ours"
	_, err := js.UpdateStream(t.Context(), bad)
	must(t, err)
	_, err = js.UpdateConsumer(t.Context(), stream.GrantsStream, jetstream.ConsumerConfig{
		Durable: stream.OrdersConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second,
		MaxAckPending: 1, MaxDeliver: 3, FilterSubject: "grants.*",
	})
	must(t, err)

	must(t, s.EnsureTopology(t.Context()))

	c := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream)).CachedInfo().Config
	if c.MaxAge != 0 || c.Duplicates < 2*time.Minute || c.MaxMsgsPerSubject != -1 || c.Discard != jetstream.DiscardNew || c.AllowDirect {
		t.Errorf("not corrected: %+v", c)
	}
	if c.MaxBytes != 1<<30 || c.Compression != jetstream.S2Compression || c.Description != "ours" {
		t.Errorf("not left alone: %+v", c)
	}
	o := get[jetstream.Consumer](t)(js.Consumer(t.Context(), stream.GrantsStream, stream.OrdersConsumer)).CachedInfo().Config
	if o.AckWait != time.Second || o.MaxAckPending != 4096 || o.MaxDeliver != -1 || o.FilterSubject != "" {
		t.Errorf("not corrected: %+v", o)
	}
}

func TestNeitherMessagesNorFencesCanBePickedOut(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	fence := begin(t, s, "s1")
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	grants := get[jetstream.Stream](t)(js.Stream(t.Context(), stream.GrantsStream))
	if err := grants.DeleteMsg(t.Context(), fence.Seq); err == nil {
		t.Fatal("the fence was deleted")
	}
}

func TestAStreamThatCannotBeCorrectedIsAClearError(t *testing.T) {
	for name, other := range map[string]jetstream.StreamConfig{
		"in memory":        {Name: stream.GrantsStream, Subjects: []string{"grants.*", "fence.*"}, Storage: jetstream.MemoryStorage},
		"a work queue":     {Name: stream.GrantsStream, Subjects: []string{"grants.*", "fence.*"}, Retention: jetstream.WorkQueuePolicy},
		"another's stream": {Name: "OTHER", Subjects: []string{"grants.>"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.NATS(t)
			js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
			get[jetstream.Stream](t)(js.CreateStream(t.Context(), other))
			err := openOnly(t, server.URL()).EnsureTopology(t.Context())
			wantError(t, err, stream.ErrTopology)
			if !strings.Contains(err.Error(), stream.GrantsStream) {
				t.Fatalf("%v does not name the stream", err)
			}
		})
	}
}

func TestAConsumerThatCannotBeCorrectedIsAClearError(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteConsumer(t.Context(), stream.GrantsStream, stream.OrdersConsumer))
	_, err := js.CreateConsumer(t.Context(), stream.GrantsStream, jetstream.ConsumerConfig{Durable: stream.OrdersConsumer, AckPolicy: jetstream.AckNonePolicy})
	must(t, err)
	wantError(t, s.EnsureTopology(t.Context()), stream.ErrTopology)
}

func TestReplicasThatOneServerCannotGiveAreAClearError(t *testing.T) {
	s := openOnly(t, harness.NATS(t).URL(), func(c *stream.Config) { c.Replicas = 3 })
	wantError(t, s.EnsureTopology(t.Context()), stream.ErrTopology)
}

func TestAServiceStartsBeforeTheServer(t *testing.T) {
	server := harness.NATS(t)
	server.Kill()
	s := openOnly(t, server.URL())
	if s.Reachable() {
		t.Fatal("reachable without a server")
	}
	wantError(t, s.Connected(t.Context()), stream.ErrNotConnected)
	wantError(t, s.EnsureTopology(t.Context()), stream.ErrNotConnected)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantError(t, s.AwaitTopology(short), stream.ErrNotConnected)
	done := make(chan error, 1)
	go func() { done <- s.AwaitTopology(context.Background()) }()
	server.Start()
	must(t, <-done)
	must(t, s.Connected(t.Context()))
	must(t, s.Supported())
}

func TestConnectedKnowsASilentServerAndAMissingStream(t *testing.T) {
	server := harness.NATS(t)
	s := open(t, server, func(c *stream.Config) { c.RequestTimeout = 200 * time.Millisecond })
	must(t, s.Connected(t.Context()))
	server.Pause()
	harness.Eventually(t, wait, "a frozen server is noticed", func() (bool, string) {
		return s.Connected(t.Context()) != nil, "it counts as connected"
	})
	server.Resume()
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteStream(t.Context(), stream.GrantsStream))
	if s.Connected(t.Context()) == nil {
		t.Fatal("connected without the stream")
	}
}

func TestABadConfigurationIsRefused(t *testing.T) {
	for name, c := range map[string]stream.Config{
		"no URL":     {},
		"replicas":   {URL: "nats://127.0.0.1:1", Replicas: 6},
		"timeout":    {URL: "nats://127.0.0.1:1", PublishTimeout: time.Hour},
		"fences":     {URL: "nats://127.0.0.1:1", FenceAttempts: -1},
		"a bad URL":  {URL: "nats://user:hunter2@127.0.0.1:port"},
		"no creds":   {URL: "nats://127.0.0.1:1", Creds: "/nowhere/to/be/found.creds"},
		"reconciles": {URL: "nats://127.0.0.1:1", ReconcilesMax: 1001},
	} {
		s, err := stream.Open(c)
		if err == nil {
			t.Errorf("%s was accepted", name)
			s.Close()
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
	}
}

func TestNewRefusesAConnectionThatKeepsMessagesForLater(t *testing.T) {
	server := harness.NATS(t)
	if _, err := stream.New(server.Conn(), stream.Config{}); err == nil {
		t.Fatal("it was accepted")
	}
	cfg := stream.Config{}
	conn := get[*nats.Conn](t)(nats.Connect(server.URL(), cfg.Options()...))
	defer conn.Close()
	s := get[*stream.Stream](t)(stream.New(conn, cfg))
	must(t, s.AwaitTopology(t.Context()))
	s.Close()
	if !conn.IsConnected() {
		t.Fatal("Close closed the caller's connection")
	}
}

func TestAStreamMadeAnewNeverGivesOutASequenceTwice(t *testing.T) {
	server := harness.NATS(t)
	fromClock := func(c *stream.Config) { c.FirstSeq = 0 }
	s := open(t, server, fromClock)
	before, err := s.BeginGeneration(t.Context(), "s", 1)
	must(t, err)
	js := get[jetstream.JetStream](t)(jetstream.New(server.Conn()))
	must(t, js.DeleteStream(t.Context(), stream.GrantsStream))
	must(t, s.EnsureTopology(t.Context()))
	after, err := s.BeginGeneration(t.Context(), "s", 1)
	must(t, err)
	if after.Seq <= before.Seq {
		t.Errorf("the fence of the new stream is %d, that of the old one was %d", after.Seq, before.Seq)
	}
}
