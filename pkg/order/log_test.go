package order_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// records is what was logged, a line each: the level and the message first.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *records) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// count is how many lines begin so; start is a level, a space, and the
// beginning of the message.
func (r *records) count(start string) int {
	level, message, _ := strings.Cut(start, " ")
	n := 0
	for line := range strings.Lines(r.String()) {
		if strings.HasPrefix(line, `level=`+level+` msg="`+message) {
			n++
		}
	}
	return n
}
