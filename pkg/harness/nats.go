package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSServer is a private nats-server with JetStream on disk, each message flushed before it is acknowledged.
type NATSServer struct {
	server
	extra string
}

// NATSOption changes how NATS starts a server.
type NATSOption func(*NATSServer)

// WithNATSConfig appends lines to the server's configuration file.
func WithNATSConfig(lines string) NATSOption {
	return func(s *NATSServer) { s.extra += lines + "\n" }
}

// NATS starts a nats-server for this test, of the version that go.mod names.
func NATS(t testing.TB, options ...NATSOption) *NATSServer {
	t.Helper()
	path, err := natsBinary()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := newFolder("nats")
	if err != nil {
		t.Fatal(err)
	}
	s := &NATSServer{}
	s.name, s.folder, s.program = "nats-server", folder, path
	s.arguments, s.ping = s.commandLine, s.answers
	for _, option := range options {
		option(s)
	}
	s.ownedBy(t)
	return s
}

func (s *NATSServer) commandLine() ([]string, error) {
	path := filepath.Join(s.folder, "nats.conf")
	content := fmt.Sprintf(`listen: "%s"
server_name: "%s"
jetstream {
  store_dir: "%s"
  sync_interval: always
}
%s`, s.Addr(), filepath.Base(s.folder), filepath.Join(s.folder, "data"), s.extra)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of nats-server: %w", err)
	}
	return []string{"--config", path}, nil
}

// answers asks for JetStream, which comes up after the client port.
func (s *NATSServer) answers(ctx context.Context) error {
	conn, err := nats.Connect(s.URL(), nats.Timeout(pingLimit), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	_, err = js.AccountInfo(ctx)
	return err
}

// URL is the server's address as a nats:// URL.
func (s *NATSServer) URL() string {
	return "nats://" + s.Addr()
}

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
