package web

import (
	"crypto/rand"
	"net/http"
)

// requestIDKey is how net/http spells X-Request-ID in its map.
const requestIDKey = "X-Request-Id"

// RequestID returns the id that the client, or a proxy before us, gave the
// request in X-Request-ID: 1 to 64 letters, digits, dots, dashes or underscores.
// Anything else is ignored, because it ends up in logs.
func RequestID(r *http.Request) string {
	values := r.Header[requestIDKey]
	if len(values) != 1 || len(values[0]) == 0 || len(values[0]) > maxRequestID {
		return ""
	}
	for i := range len(values[0]) {
		c := values[0][i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return ""
		}
	}
	return values[0]
}

// ensureRequestID returns the id of the request, and makes one up when there is
// none: whoever reports a fault can then name it. The response carries it.
func ensureRequestID(w http.ResponseWriter, r *http.Request) string {
	if id := RequestID(r); id != "" {
		return id
	}
	if made := w.Header()[requestIDKey]; len(made) == 1 {
		return made[0]
	}
	id := rand.Text()
	w.Header()[requestIDKey] = []string{id}
	return id
}
