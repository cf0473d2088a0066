package embedded

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsStartLimit bounds the start: JetStream reads back what it has on disk.
const natsStartLimit = 30 * time.Second

// NATS is a nats-server inside this process.
type NATS struct {
	server *server.Server
	url    string
}

// StartNATS starts a nats-server that keeps its streams in the folder.
func StartNATS(folder *Folder, log *slog.Logger) (*NATS, error) {
	password := rand.Text()
	s, err := server.NewServer(&server.Options{
		ServerName:                 "doorbuster-embedded",
		Host:                       "127.0.0.1",
		Port:                       server.RANDOM_PORT,
		CustomClientAuthentication: gate{password},
		NoSigs:                     true,
		JetStream:                  true,
		StoreDir:                   filepath.Join(folder.Path(), "nats"),
		// An acknowledged message is on disk; "won" rests on that.
		SyncAlways:             true,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the embedded nats-server: %w", err)
	}
	s.SetLoggerV2(natsLog{log.With("part", "nats-server")}, false, false, false)
	s.Start()
	n := &NATS{server: s}
	if !s.ReadyForConnections(natsStartLimit) || !s.JetStreamEnabled() {
		n.Close()
		return nil, errors.New("the embedded nats-server did not start; the log says why")
	}
	n.url = "nats://doorbuster:" + password + "@" + s.Addr().String()
	return n, nil
}

// gate lets in who knows the password. (nats-server would warn of one in its options.)
type gate struct{ password string }

// Check compares what a client sent.
func (g gate) Check(c server.ClientAuthentication) bool {
	return subtle.ConstantTimeCompare([]byte(c.GetOpts().Password), []byte(g.password)) == 1
}

// URL is its address with user and password.
func (n *NATS) URL() string { return n.url }

// Close stops it. What it acknowledged stays in the folder.
func (n *NATS) Close() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// natsLog passes on what nats-server has to say that matters here.
type natsLog struct{ log *slog.Logger }

func (l natsLog) say(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "nats-server reports", "text", fmt.Sprintf(format, v...))
}

// Noticef hears of starts and stops.
func (l natsLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Warnf hears of what may be wrong.
func (l natsLog) Warnf(format string, v ...any) { l.say(slog.LevelWarn, format, v) }

// Errorf hears of what is wrong.
func (l natsLog) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Fatalf hears of what nats-server does not survive; this process lives on, not ready.
func (l natsLog) Fatalf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Debugf is not switched on.
func (natsLog) Debugf(string, ...any) {}

// Tracef is not switched on.
func (natsLog) Tracef(string, ...any) {}
