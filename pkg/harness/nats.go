package harness

import (
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/servers"
	"github.com/nats-io/nats.go"
)

// NATSServer is a private nats-server with JetStream on disk, each message flushed before it is acknowledged.
type NATSServer struct {
	server
	nats *servers.NATS
}

// NATSOption changes how NATS starts a server.
type NATSOption func(config *string)

// WithNATSConfig appends lines to the server's configuration file.
func WithNATSConfig(lines string) NATSOption {
	return func(config *string) { *config += lines + "\n" }
}

// NATS starts a nats-server for this test, of the version that go.mod names.
func NATS(t testing.TB, options ...NATSOption) *NATSServer {
	t.Helper()
	config := ""
	for _, option := range options {
		option(&config)
	}
	s, err := servers.StartNATS(config)
	if err != nil {
		t.Fatal(err)
	}
	return &NATSServer{server: ownedBy(t, s.Server), nats: s}
}

// URL is the server's address as a nats:// URL.
func (s *NATSServer) URL() string { return s.nats.URL() }

// Conn returns a connection of its own that reconnects for as long as the test runs, and is closed when it ends.
func (s *NATSServer) Conn() *nats.Conn {
	s.t.Helper()
	conn, err := nats.Connect(s.URL(),
		nats.Timeout(5*time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		s.t.Fatalf("connect to nats-server: %v", err)
	}
	s.t.Cleanup(conn.Close)
	return conn
}
