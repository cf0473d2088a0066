package web

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
)

// Header values, made once: assigning a slice saves the allocation of Header.Set.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
)

// Write answers with v as JSON. An error of marshalling is a fault of the
// service: it answers 500 and is logged.
func Write(w http.ResponseWriter, status int, v any) {
	buffer := getBuffer()
	defer putBuffer(buffer)
	out := bytes.NewBuffer((*buffer)[:0])
	if err := json.NewEncoder(out).Encode(v); err != nil {
		slog.Error("response cannot be marshalled", "error", err)
		send(w, http.StatusInternalServerError, problemType, append(Internal().AppendJSON(nil), '\n'))
		return
	}
	*buffer = out.Bytes()
	send(w, status, jsonType, *buffer)
}

// Appender is a body that writes itself.
type Appender interface {
	// AppendJSON appends the JSON value to b.
	AppendJSON(b []byte) []byte
}

// WriteJSON is Write for a body that writes itself, without reflection.
func WriteJSON(w http.ResponseWriter, status int, body Appender) {
	buffer := getBuffer()
	defer putBuffer(buffer)
	*buffer = append(body.AppendJSON((*buffer)[:0]), '\n')
	send(w, status, jsonType, *buffer)
}

func send(w http.ResponseWriter, status int, contentType []string, body []byte) {
	header := w.Header()
	header["Content-Type"] = contentType
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone; there is nobody to tell
}

// maxKept is the largest buffer that is kept for the next request: that of the
// answers to a full batch of grabs.
const maxKept = 256 << 10

// buffers hold request and response bodies. Those that grew beyond maxKept are
// dropped, so that one long listing does not stay in memory.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxKept {
		buffers.Put(b)
	}
}
