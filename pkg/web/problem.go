// Package web is the ground that the HTTP services stand on: problems, strict
// decoding, identity, routing and the server itself.
package web

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Problem is the body of every answer that is not a success: RFC 9457
// problem+json with a stable code. Make one with NewProblem or one of the
// functions for common cases; change what they return with the With methods.
type Problem struct {
	Status int    // HTTP status, 400 or more
	Code   string // one of the Code constants
	Detail string // what happened to this request, for a person; may be empty
	Field  string // the field, header or parameter that is wrong, if one is

	retryAfter time.Duration
	challenge  bool
	members    []member
}

// member is a further member of the problem's JSON object.
type member struct {
	name  string
	value any
}

// NewProblem returns a problem. The title is that of the status.
func NewProblem(status int, code, detail string) *Problem {
	return &Problem{Status: status, Code: code, Detail: detail}
}

// Error makes a problem an error, so that it can travel through code that knows
// nothing of HTTP.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Code
	}
	return p.Code + ": " + p.Detail
}

// With adds a member to the JSON object, such as outcome or order_id, and returns
// p. A name that the problem already has is replaced.
func (p *Problem) With(name string, value any) *Problem {
	for i := range p.members {
		if p.members[i].name == name {
			p.members[i].value = value
			return p
		}
	}
	p.members = append(p.members, member{name, value})
	return p
}

// RetryAfter is what the header Retry-After says, in seconds; 0 is none.
func (p *Problem) RetryAfter() int { return int(math.Ceil(p.retryAfter.Seconds())) }

// WithRetryAfter adds the header Retry-After, rounded up to seconds, at least 1, and returns p.
func (p *Problem) WithRetryAfter(d time.Duration) *Problem {
	p.retryAfter = max(d, time.Second)
	return p
}

// BadRequest is a request that cannot be understood: 400.
func BadRequest(detail string) *Problem {
	return NewProblem(http.StatusBadRequest, CodeBadRequest, detail)
}

// InvalidField is a request in which one field, header or parameter is wrong: 400.
func InvalidField(field, detail string) *Problem {
	p := NewProblem(http.StatusBadRequest, CodeInvalidField, detail)
	p.Field = field
	return p
}

// Unauthorized is a caller nobody vouches for: 401.
func Unauthorized(detail string) *Problem {
	p := NewProblem(http.StatusUnauthorized, CodeUnauthorized, detail)
	p.challenge = true
	return p
}

// NotFound is a thing that does not exist, or not for this caller: 404.
func NotFound(detail string) *Problem {
	return NewProblem(http.StatusNotFound, CodeNotFound, detail)
}

// Conflict is a change that the stored state does not allow: 409. code may be any
// of those that say why.
func Conflict(code, detail string) *Problem {
	return NewProblem(http.StatusConflict, code, detail)
}

// Unavailable is a service that cannot answer now: 503 with Retry-After.
func Unavailable(code, detail string, retryAfter time.Duration) *Problem {
	return NewProblem(http.StatusServiceUnavailable, code, detail).WithRetryAfter(retryAfter)
}

// Internal is a fault of the service: 500. The cause belongs in the log, not here.
func Internal() *Problem {
	return NewProblem(http.StatusInternalServerError, CodeInternal, "the service failed; the log says why")
}

// AppendJSON appends the problem's JSON object to b.
func (p *Problem) AppendJSON(b []byte) []byte {
	b = append(b, `{"type":"about:blank","title":`...)
	b = appendString(b, http.StatusText(p.Status))
	b = append(b, ',')
	return append(p.AppendMembers(b), '}')
}

// AppendMembers appends what says more than the status does, from "status" on and
// without braces: for a problem that is one result among others.
func (p *Problem) AppendMembers(b []byte) []byte {
	b = append(b, `"status":`...)
	b = strconv.AppendInt(b, int64(p.Status), 10)
	b = append(b, `,"code":`...)
	b = appendString(b, p.Code)
	if p.Detail != "" {
		b = append(b, `,"detail":`...)
		b = appendString(b, p.Detail)
	}
	if p.Field != "" {
		b = append(b, `,"field":`...)
		b = appendString(b, p.Field)
	}
	for _, m := range p.members {
		b = append(b, ',')
		b = appendString(b, m.name)
		b = append(b, ':')
		b = appendValue(b, m.value)
	}
	return b
}

// MarshalJSON is AppendJSON for encoding/json.
func (p *Problem) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// appendString appends a JSON string. Plain text, the usual case, is copied.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string can always be marshalled
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendValue(b []byte, value any) []byte {
	switch value := value.(type) {
	case string:
		return appendString(b, value)
	case bool:
		return strconv.AppendBool(b, value)
	case int:
		return strconv.AppendInt(b, int64(value), 10)
	case int64:
		return strconv.AppendInt(b, value, 10)
	default:
		encoded, err := json.Marshal(value)
		if err != nil {
			return append(b, "null"...) // the problem itself must still reach the client
		}
		return append(b, encoded...)
	}
}

// Fail answers with a problem. It does not change p, so that one problem may
// answer many requests. A 500 carries the request's id, for whoever reports it.
func Fail(w http.ResponseWriter, r *http.Request, p *Problem) {
	header := w.Header()
	if seconds := p.RetryAfter(); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if p.challenge {
		header.Set("WWW-Authenticate", `Bearer realm="doorbuster"`)
	}
	if p.Status == http.StatusInternalServerError {
		named := *p
		named.members = append(slices.Clone(p.members), member{"request_id", ensureRequestID(w, r)})
		p = &named
	}
	buffer := getBuffer()
	defer putBuffer(buffer)
	*buffer = append(p.AppendJSON((*buffer)[:0]), '\n')
	send(w, p.Status, problemType, *buffer)
}

// Failure answers with err when it is, or wraps, a Problem. Any other error is a
// fault of the service: the client hears 500, and the log hears the cause.
func Failure(w http.ResponseWriter, r *http.Request, err error) {
	if p, ok := errors.AsType[*Problem](err); ok {
		Fail(w, r, p)
		return
	}
	slog.ErrorContext(r.Context(), "request failed", "method", r.Method, "route", r.Pattern,
		"request_id", ensureRequestID(w, r), "error", err)
	Fail(w, r, Internal())
}
