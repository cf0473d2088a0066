package web

import (
	"bytes"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// benchConnections is how many clients keep their connections open.
const benchConnections = 2000

// created answers with about as much as a grab is answered with.
var created = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusCreated, BadRequest(strings.Repeat("x", 150)))
})

// BenchmarkIdleConnection tells what an open connection costs that has had one answer: memory
// of both ends, of which the client's is a few hundred bytes.
func BenchmarkIdleConnection(b *testing.B) {
	for _, engine := range engines {
		b.Run(engine.name, func(b *testing.B) {
			r := start(b, &Server{Fast: engine.fast, ShutdownTimeout: time.Minute, Handler: created})
			for b.Loop() {
				before := memoryInUse()
				conns := make([]net.Conn, benchConnections)
				for i := range conns {
					conns[i] = connect(b, r)
					ask(b, conns[i])
				}
				b.ReportMetric(float64(memoryInUse()-before)/benchConnections, "B/connection")
				for _, conn := range conns {
					_ = conn.Close()
				}
			}
		})
	}
}

// BenchmarkSmallRequest is the time of a request of the size of a grab, with that of
// its client, which is the same for both engines; many clients keep all cores busy.
func BenchmarkSmallRequest(b *testing.B) {
	for _, engine := range engines {
		b.Run(engine.name, func(b *testing.B) {
			r := start(b, &Server{Fast: engine.fast, ShutdownTimeout: time.Minute, Handler: created})
			b.SetParallelism(128)
			b.RunParallel(func(pb *testing.PB) {
				conn := connect(b, r)
				defer func() { _ = conn.Close() }()
				for pb.Next() {
					ask(b, conn)
				}
			})
		})
	}
}

func connect(b *testing.B, r *running) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		b.Error(err)
	}
	return conn
}

var smallRequest = []byte(head("POST", "/v1/sales/a/grabs", "X-User-ID: user-1", "Idempotency-Key: key-1", "Content-Length: 0"))

// ask has one small request answered, whose response is expected to come in one piece.
func ask(b *testing.B, conn net.Conn) {
	b.Helper()
	if _, err := conn.Write(smallRequest); err != nil {
		b.Error(err)
	}
	var answer [4096]byte
	n, err := conn.Read(answer[:])
	if err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 201 ")) {
		b.Errorf("%s, %v", answer[:n], err)
	}
}

// memoryInUse is what the process holds in live objects and in stacks.
func memoryInUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}
