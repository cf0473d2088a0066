package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
)

// MaxBody is the most bytes a request body may have.
const MaxBody = 64 << 10

// Decode reads the request's body as one JSON value into a T, strictly: unknown
// fields, wrong types, anything after the value, invalid UTF-8 and bodies over
// MaxBody are problems that say what is wrong and, where one is, name the field.
func Decode[T any](r *http.Request) (T, *Problem) {
	value, present, problem := DecodeOptional[T](r)
	if problem == nil && !present {
		problem = BadRequest("the body is empty; a JSON value is expected")
	}
	return value, problem
}

// DecodeOptional is Decode for requests that may come without a body; present
// tells whether there was one.
func DecodeOptional[T any](r *http.Request) (value T, present bool, problem *Problem) {
	buffer := getBuffer()
	defer putBuffer(buffer)
	problem = readBody(r, buffer)
	if problem != nil {
		return value, false, problem
	}
	body := bytes.Trim(*buffer, " \t\r\n")
	if len(body) == 0 {
		return value, false, nil
	}
	if problem := checkMediaType(r.Header); problem != nil {
		return value, true, problem
	}
	if !utf8.Valid(body) {
		return value, true, BadRequest("the body is not valid UTF-8")
	}
	if string(body) == "null" {
		return value, true, BadRequest("the body is null")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		var zero T
		return zero, true, decodeProblem(err)
	}
	if decoder.InputOffset() != int64(len(body)) {
		var zero T
		return zero, true, BadRequest("the body goes on after the JSON value")
	}
	return value, true, nil
}

// readBody reads the whole body into the buffer, but never more than MaxBody bytes and one.
func readBody(r *http.Request, buffer *[]byte) *Problem {
	b := (*buffer)[:0]
	defer func() { *buffer = b }()
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength > MaxBody {
		return tooLarge()
	}
	for {
		if len(b) > MaxBody {
			return tooLarge()
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):min(cap(b), MaxBody+1)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return BadRequest("the body could not be read to its end")
		}
	}
	if len(b) > MaxBody {
		return tooLarge()
	}
	return nil
}

func tooLarge() *Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, CodeBodyTooLarge, "the body is larger than 64 KiB").With("limit", MaxBody)
}

// checkMediaType accepts JSON, and a body that does not say what it is.
func checkMediaType(header http.Header) *Problem {
	contentType := header.Get("Content-Type")
	if contentType == "" || contentType == "application/json" {
		return checkEncoding(header)
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" && !strings.HasSuffix(mediaType, "+json") {
		return NewProblem(http.StatusUnsupportedMediaType, CodeUnsupportedMediaType, "the body must be application/json")
	}
	return checkEncoding(header)
}

func checkEncoding(header http.Header) *Problem {
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return NewProblem(http.StatusUnsupportedMediaType, CodeUnsupportedMediaType, "a compressed body is not accepted")
	}
	return nil
}

// decodeProblem turns an error of encoding/json into a problem.
func decodeProblem(err error) *Problem {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		detail := fmt.Sprintf("expected %s, got %s", jsonName(wrongType), wrongType.Value)
		if wrongType.Field == "" {
			return BadRequest("the body has the wrong type: " + detail)
		}
		return InvalidField(wrongType.Field, detail)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return BadRequest(fmt.Sprintf("the body is not valid JSON, near byte %d", syntax.Offset))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return BadRequest("the body is not valid JSON: it ends too early")
	}
	// encoding/json has no type for this error.
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		return InvalidField(strings.Trim(name, `"`), "there is no such field")
	}
	if p, ok := errors.AsType[*Problem](err); ok { // a type that decodes itself may say more
		return p
	}
	return BadRequest("the body holds a value that cannot be read: " + err.Error())
}

// jsonName says what JSON value a Go type wants.
func jsonName(err *json.UnmarshalTypeError) string {
	switch name := err.Type.Kind().String(); {
	case strings.HasPrefix(name, "int"):
		return "an integer"
	case strings.HasPrefix(name, "uint"):
		return "an integer from 0 up"
	case strings.HasPrefix(name, "float"):
		return "a number"
	case name == "bool":
		return "true or false"
	case name == "string":
		return "a string"
	case name == "slice" || name == "array":
		return "an array"
	default:
		return "an object"
	}
}
