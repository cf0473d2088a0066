package web

import "net/http"

// IdempotencyHeader is the header with which a client marks its retries.
const IdempotencyHeader = "Idempotency-Key"

// Bounds of what clients call themselves and their requests, in bytes.
const (
	maxIdempotencyKey = 64
	maxUserID         = 128
	maxRequestID      = 64
)

// IdempotencyKey returns the request's Idempotency-Key, or "" when it has none.
// It must be one value of 1 to 64 printable ASCII characters without spaces.
func IdempotencyKey(r *http.Request) (string, *Problem) {
	values := r.Header[IdempotencyHeader]
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", InvalidField(IdempotencyHeader, "the header is given more than once")
	case !ValidIdempotencyKey(values[0]):
		return "", InvalidField(IdempotencyHeader, "must be 1 to 64 printable ASCII characters without spaces")
	}
	return values[0], nil
}

// ValidIdempotencyKey reports whether key is 1 to 64 printable ASCII characters
// without spaces.
func ValidIdempotencyKey(key string) bool { return isToken(key, maxIdempotencyKey) }

// isToken reports whether s is 1 to limit printable ASCII characters without spaces.
func isToken(s string, limit int) bool {
	if len(s) == 0 || len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
