package servers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATS is a private nats-server with JetStream on disk, each message flushed before it is acknowledged.
type NATS struct {
	*Server

	extra string
}

// StartNATS starts a nats-server of the version that go.mod names. extra is appended to its configuration file.
func StartNATS(extra string) (*NATS, error) {
	path, err := natsBinary()
	if err != nil {
		return nil, err
	}
	folder, err := NewFolder("nats")
	if err != nil {
		return nil, err
	}
	s := &NATS{Server: &Server{name: "nats-server", folder: folder, program: path}, extra: extra}
	s.arguments, s.ping = s.commandLine, s.answers
	if err := s.launch(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *NATS) commandLine() ([]string, error) {
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
func (s *NATS) answers(ctx context.Context) error {
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
func (s *NATS) URL() string { return "nats://" + s.Addr() }
