package stream_test

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a client and the server and can lose answers.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	mute  []byte // the next connection that sends this hears nothing any more
	muted int
	conns map[net.Conn]bool
}

// newProxy stands in front of a server given by its nats:// URL.
func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: listener, target: strings.TrimPrefix(url, "nats://"), conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// loseAnswersAfter lets the server have what the client sends, and loses all that
// the server says to a connection once that connection has sent text. Later connections are whole.
func (p *proxy) loseAnswersAfter(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = []byte(text)
}

// lost is how many connections have been muted.
func (p *proxy) lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		var mute atomic.Bool
		p.running.Go(func() {
			p.forward(server, client, func(data []byte) []byte {
				if p.shouldMute(data) {
					mute.Store(true)
				}
				return data
			})
		})
		p.running.Go(func() {
			p.forward(client, server, func(data []byte) []byte {
				if mute.Load() {
					return nil
				}
				return data
			})
		})
	}
}

func (p *proxy) shouldMute(data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mute) == 0 || !bytes.Contains(data, p.mute) {
		return false
	}
	p.mute = nil
	p.muted++
	return true
}

// forward copies until one end closes, then closes both.
func (p *proxy) forward(to, from net.Conn, change func([]byte) []byte) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, to)
		delete(p.conns, from)
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if _, werr := to.Write(change(buffer[:n])); err != nil || werr != nil {
			return
		}
	}
}
