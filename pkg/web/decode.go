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

// MaxBody is the most bytes a request body may have, where nothing else is said.
const MaxBody = 64 << 10

// Decode reads the request's body as one JSON value into a T, strictly: unknown
// fields, wrong types, anything after the value, invalid UTF-8 and bodies over
// MaxBody are problems that say what is wrong and, where one is, name the field.
func Decode[T any](r *http.Request) (T, *Problem) {
	return DecodeUpTo[T](r, MaxBody)
}

// DecodeUpTo is Decode for bodies of up to limit bytes.
func DecodeUpTo[T any](r *http.Request, limit int) (T, *Problem) {
	value, present, problem := decodeBody[T](r, limit)
	if problem == nil && !present {
		problem = BadRequest("the body is empty; a JSON value is expected")
	}
	return value, problem
}

// DecodeOptional is Decode for requests that may come without a body; present
// tells whether there was one.
func DecodeOptional[T any](r *http.Request) (value T, present bool, problem *Problem) {
	return decodeBody[T](r, MaxBody)
}

func decodeBody[T any](r *http.Request, limit int) (value T, present bool, problem *Problem) {
	buffer := getBuffer()
	defer putBuffer(buffer)
	problem = readBody(r, buffer, limit)
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

// readBody reads the whole body into the buffer, but never more than limit bytes and one.
func readBody(r *http.Request, buffer *[]byte, limit int) *Problem {
	b := (*buffer)[:0]
	defer func() { *buffer = b }()
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength > int64(limit) {
		return tooLarge(limit)
	}
	for {
		if len(b) > limit {
			return tooLarge(limit)
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):min(cap(b), limit+1)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return BadRequest("the body could not be read to its end")
		}
	}
	if len(b) > limit {
		return tooLarge(limit)
	}
	return nil
}

func tooLarge(limit int) *Problem {
	detail := fmt.Sprintf("the body is larger than %d KiB", limit>>10)
	return NewProblem(http.StatusRequestEntityTooLarge, CodeBodyTooLarge, detail).With("limit", limit)
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

// DecodeList decodes a JSON array of up to most elements, as strictly as Decode. A
// problem names the element: "grabs[3].user" in a list of that name. It is for the
// UnmarshalJSON of a list; there the array is known to be valid JSON.
func DecodeList[T any](name string, text []byte, most int) ([]T, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return nil, InvalidField(name, "expected an array")
	}
	var list []T
	for decoder.More() {
		if len(list) == most {
			return nil, InvalidField(name, fmt.Sprintf("must hold at most %d", most))
		}
		list = append(list, *new(T))
		if err := decoder.Decode(&list[len(list)-1]); err != nil {
			return nil, elementProblem(fmt.Sprintf("%s[%d]", name, len(list)-1), err)
		}
	}
	return list, nil
}

// DecodeField decodes one field of a body, kept as json.RawMessage to tell null from
// absent, as strictly as Decode. A problem names the field, or what is within it.
func DecodeField[T any](name string, text json.RawMessage) (T, *Problem) {
	var value T
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return *new(T), elementProblem(name, err)
	}
	return value, nil
}

// elementProblem is decodeProblem for a part of a body.
func elementProblem(element string, err error) *Problem {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrongType.Field == "" {
		return InvalidField(element, expected(wrongType))
	}
	problem := decodeProblem(err)
	if problem.Field != "" {
		element += "." + problem.Field
	}
	problem.Code, problem.Field = CodeInvalidField, element
	return problem
}

// decodeProblem turns an error of encoding/json into a problem.
func decodeProblem(err error) *Problem {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrongType.Field == "" {
			return BadRequest("the body has the wrong type: " + expected(wrongType))
		}
		return InvalidField(wrongType.Field, expected(wrongType))
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

func expected(wrongType *json.UnmarshalTypeError) string {
	return fmt.Sprintf("expected %s, got %s", jsonName(wrongType), wrongType.Value)
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
