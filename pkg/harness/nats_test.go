package harness

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestNATSKeepsAcknowledgedMessagesAfterSIGKILL(t *testing.T) {
	server := NATS(t)
	conn := server.Conn()
	js, err := jetstream.New(conn)
	must(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}})
	must(t, err)
	_, err = js.Publish(t.Context(), "kept", []byte("hello"))
	must(t, err)

	server.Kill()
	server.Start()

	Eventually(t, 10*time.Second, "client reconnects", func() (bool, string) {
		return conn.Status() == nats.CONNECTED, conn.Status().String()
	})
	message, err := stream.GetMsg(t.Context(), 1)
	must(t, err)
	if string(message.Data) != "hello" {
		t.Fatalf("message is %q", message.Data)
	}
}
