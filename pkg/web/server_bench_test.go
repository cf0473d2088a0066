package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// benchConnections is how many clients keep their connections open.
const benchConnections = 2000

// BenchmarkIdleConnection tells what an open connection costs that has had one answer: memory
// of both ends, of which the client's is a few hundred bytes.
func BenchmarkIdleConnection(b *testing.B) {
	for name, fast := range map[string]bool{"net/http": false, "fasthttp": true} {
		b.Run(name, func(b *testing.B) {
			r := start(b, &Server{Fast: fast, ShutdownTimeout: time.Minute, Handler: http.HandlerFunc(mirror)})
			for b.Loop() {
				before := memoryInUse()
				conns := make([]net.Conn, benchConnections)
				for i := range conns {
					conns[i] = asked(b, r)
				}
				b.ReportMetric(float64(memoryInUse()-before)/benchConnections, "B/connection")
				for _, conn := range conns {
					_ = conn.Close()
				}
			}
		})
	}
}

// asked opens a connection and has one request answered on it.
func asked(b *testing.B, r *running) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.WriteString(conn, head("GET", "/", "X-User-ID: me")); err != nil {
		b.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return conn
}

// memoryInUse is what the process holds in live objects and in stacks.
func memoryInUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}
