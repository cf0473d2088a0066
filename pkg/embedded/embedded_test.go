package embedded_test

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/embedded"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { harness.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *embedded.Folder {
	t.Helper()
	folder, err := embedded.OpenFolder(path)
	must(t, err)
	t.Cleanup(func() { _ = folder.Close() })
	return folder
}

func connect(t testing.TB, address string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(address)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return nc, js
}

func TestNATSKeepsWhatItAcknowledgedOverARestart(t *testing.T) {
	folder := open(t, t.TempDir())
	server, err := embedded.StartNATS(folder, slog.New(slog.DiscardHandler))
	must(t, err)
	nc, js := connect(t, server.URL())
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}, Storage: jetstream.FileStorage})
	must(t, err)
	_, err = js.Publish(t.Context(), "kept", []byte("word"))
	must(t, err)
	nc.Close()
	server.Close()

	server, err = embedded.StartNATS(folder, slog.New(slog.DiscardHandler))
	must(t, err)
	defer server.Close()
	_, js = connect(t, server.URL())
	stream, err := js.Stream(t.Context(), "KEPT")
	must(t, err)
	msg, err := stream.GetMsg(t.Context(), 1)
	must(t, err)
	if string(msg.Data) != "word" {
		t.Errorf("message %q", msg.Data)
	}
}

func TestNobodyGetsInWithoutThePassword(t *testing.T) {
	folder := open(t, t.TempDir())
	server, err := embedded.StartNATS(folder, slog.New(slog.DiscardHandler))
	must(t, err)
	defer server.Close()
	if nc, err := nats.Connect(withoutUser(t, server.URL()), nats.NoReconnect()); err == nil {
		nc.Close()
		t.Error("nats-server let a stranger in")
	}
	store, err := embedded.StartRedis()
	must(t, err)
	defer store.Close()
	options, err := redis.ParseURL(withoutUser(t, store.URL()))
	must(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.Set(t.Context(), "a", "b", 0).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("redis answered a stranger: %v", err)
	}
}

func withoutUser(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	if host := u.Hostname(); host != "127.0.0.1" {
		t.Errorf("listens on %s", host)
	}
	u.User = nil
	return u.String()
}

func client(t testing.TB, store *embedded.Redis) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(store.URL())
	must(t, err)
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRedisForgetsEverythingWhenItIsWiped(t *testing.T) {
	store, err := embedded.StartRedis()
	must(t, err)
	defer store.Close()
	c := client(t, store)
	must(t, c.Set(t.Context(), "a", "b", 0).Err())
	store.Wipe()
	if err := c.Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("after the wipe: %v", err)
	}
}

func TestRedisKeysExpireByTheClock(t *testing.T) {
	store, err := embedded.StartRedis()
	must(t, err)
	defer store.Close()
	c := client(t, store)
	must(t, c.Set(t.Context(), "a", "b", 50*time.Millisecond).Err())
	harness.Eventually(t, 5*time.Second, "key gone", func() (bool, string) {
		err := c.Get(t.Context(), "a").Err()
		return errors.Is(err, redis.Nil), "still there"
	})
}

func TestRedisTellsThatItNeverEvicts(t *testing.T) {
	store, err := embedded.StartRedis()
	must(t, err)
	defer store.Close()
	policy, err := stock.New(client(t, store)).EvictionPolicy(t.Context())
	if err != nil || policy != "noeviction" {
		t.Errorf("policy %q, error %v", policy, err)
	}
}

func TestOneProcessAtATimeHasAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	folder := open(t, path)
	if _, err := embedded.OpenFolder(path); !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("second taker: %v", err)
	}
	must(t, folder.Close())
	must(t, open(t, path).Close())
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a folder that was given is gone: %v", err)
	}
}

func TestATemporaryFolderIsRemoved(t *testing.T) {
	folder, err := embedded.OpenFolder("")
	must(t, err)
	must(t, os.WriteFile(folder.Ledger(), []byte("x"), 0o600))
	must(t, folder.Close())
	if _, err := os.Stat(folder.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}
