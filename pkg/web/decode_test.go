package web

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

type line struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

type order struct {
	Items []line  `json:"items"`
	Gift  bool    `json:"gift"`
	Note  *string `json:"note"`
	Code  uint8   `json:"code"`
}

const plainOrder = `{"items":[{"sku":"A","quantity":2}]}`

func TestDecodeReadsAValue(t *testing.T) {
	got, problem := Decode[order](newRequest(t, http.MethodPost, "/", " \n"+plainOrder+"\r\n\t"))
	if problem != nil || len(got.Items) != 1 || got.Items[0] != (line{"A", 2}) {
		t.Errorf("%+v, %v", got, problem)
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		name, body  string
		status      int
		code, field string
		detail      string
	}{
		{"empty", "", 400, CodeBadRequest, "", "the body is empty; a JSON value is expected"},
		{"only spaces", " \n ", 400, CodeBadRequest, "", "the body is empty; a JSON value is expected"},
		{"null", "null", 400, CodeBadRequest, "", "the body is null"},
		{"another type", `[1]`, 400, CodeBadRequest, "", "the body has the wrong type: expected an object, got array"},
		{"unknown field", `{"itmes":[]}`, 400, CodeInvalidField, "itmes", "there is no such field"},
		{"unknown field within", `{"items":[{"skuu":"A"}]}`, 400, CodeInvalidField, "skuu", "there is no such field"},
		{"wrong type", `{"gift":1}`, 400, CodeInvalidField, "gift", "expected true or false, got number"},
		{"wrong type within", `{"items":[{"quantity":"2"}]}`, 400, CodeInvalidField, "items.quantity", "expected an integer, got string"},
		{"fraction", `{"items":[{"quantity":1.5}]}`, 400, CodeInvalidField, "items.quantity", "expected an integer, got number 1.5"},
		{"out of range", `{"code":256}`, 400, CodeInvalidField, "code", "expected an integer from 0 up, got number 256"},
		{"object for an array", `{"items":{}}`, 400, CodeInvalidField, "items", "expected an array, got object"},
		{"not JSON", `{"items":[}`, 400, CodeBadRequest, "", "the body is not valid JSON, near byte 11"},
		{"cut off", `{"items":[`, 400, CodeBadRequest, "", "the body is not valid JSON: it ends too early"},
		{"two values", plainOrder + plainOrder, 400, CodeBadRequest, "", "the body goes on after the JSON value"},
		{"rubbish behind", plainOrder + " x", 400, CodeBadRequest, "", "the body goes on after the JSON value"},
		{"invalid UTF-8", "{\"note\":\"\xff\"}", 400, CodeBadRequest, "", "the body is not valid UTF-8"},
		{"too deep", strings.Repeat("[", 20000), 400, CodeBadRequest, "", "the body is not valid JSON, near byte 10001"},
		{"too large", `{"note":"` + strings.Repeat("x", MaxBody) + `"}`, 413, CodeBodyTooLarge, "", "the body is larger than 64 KiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, problem := Decode[order](newRequest(t, http.MethodPost, "/", test.body))
			if problem == nil {
				t.Fatal("no problem")
			}
			got := Problem{Status: problem.Status, Code: problem.Code, Field: problem.Field, Detail: problem.Detail}
			want := Problem{Status: test.status, Code: test.code, Field: test.field, Detail: test.detail}
			if got.Status != want.Status || got.Code != want.Code || got.Field != want.Field || got.Detail != want.Detail {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestABodyMayHaveExactlyTheLimit(t *testing.T) {
	frame := len(`{"note":""}`)
	for extra, fine := range map[int]bool{0: true, 1: false} {
		body := `{"note":"` + strings.Repeat("x", MaxBody-frame+extra) + `"}`
		for _, length := range []int64{int64(len(body)), -1} { // announced, and chunked
			r := newRequest(t, http.MethodPost, "/", body)
			r.ContentLength = length
			if _, problem := Decode[order](r); (problem == nil) != fine {
				t.Errorf("%d bytes, length %d: %v", len(body), length, problem)
			}
		}
	}
}

func TestABodyMayHaveALimitOfItsOwn(t *testing.T) {
	const limit = 1 << 20
	frame := len(`{"note":""}`)
	for size, fine := range map[int]bool{MaxBody + 1: true, limit: true, limit + 1: false} {
		body := `{"note":"` + strings.Repeat("x", size-frame) + `"}`
		for _, length := range []int64{int64(size), -1} {
			r := newRequest(t, http.MethodPost, "/", body)
			r.ContentLength = length
			_, problem := DecodeUpTo[order](r, limit)
			if (problem == nil) != fine {
				t.Errorf("%d bytes, length %d: %v", size, length, problem)
			}
			if problem != nil && (problem.Status != 413 || problem.Detail != "the body is larger than 1024 KiB") {
				t.Errorf("%d bytes: %v", size, problem)
			}
		}
	}
}

// lines is a list that decodes itself, as DecodeList is meant to be used.
type lines []line

func (l *lines) UnmarshalJSON(text []byte) (err error) {
	*l, err = DecodeList[line]("lines", text, 3)
	return err
}

func TestAProblemNamesTheElementOfAList(t *testing.T) {
	type cart struct {
		Lines lines `json:"lines"`
	}
	good := `{"sku":"A","quantity":2}`
	got, problem := Decode[cart](newRequest(t, http.MethodPost, "/", `{"lines":[`+good+`, `+good+`]}`))
	if problem != nil || len(got.Lines) != 2 || got.Lines[1] != (line{"A", 2}) {
		t.Errorf("%+v, %v", got, problem)
	}
	for list, want := range map[string]string{
		`[` + good + `,{"sku":1}]`:                 "invalid_field lines[1].sku: expected a string, got number",
		`[` + good + `,` + good + `,{"skuu":"A"}]`: "invalid_field lines[2].skuu: there is no such field",
		`["A"]`: "invalid_field lines[0]: expected an object, got string",
		`{}`:    "invalid_field lines: expected an array",
		`"A"`:   "invalid_field lines: expected an array",
		`null`:  "invalid_field lines: expected an array",
		`[` + good + strings.Repeat(`,`+good, 3) + `]`:        "invalid_field lines: must hold at most 3",
		`[` + good + `,{"sku":"A"]`:                           "bad_request : the body is not valid JSON, near byte 46",
		`[` + good + `,{"quantity":99999999999999999999999}]`: "invalid_field lines[1].quantity: expected an integer, got number 99999999999999999999999",
	} {
		_, problem := Decode[cart](newRequest(t, http.MethodPost, "/", `{"lines":`+list+`}`))
		if problem == nil {
			t.Errorf("%s: no problem", list)
			continue
		}
		if got := problem.Code + " " + problem.Field + ": " + problem.Detail; got != want {
			t.Errorf("%s: got %s, want %s", list, got, want)
		}
	}
}

func TestTheBodyIsOptionalWhenAskedFor(t *testing.T) {
	_, present, problem := DecodeOptional[order](newRequest(t, http.MethodPost, "/", ""))
	if present || problem != nil {
		t.Errorf("without a body: present %t, %v", present, problem)
	}
	got, present, problem := DecodeOptional[order](newRequest(t, http.MethodPost, "/", `{"gift":true}`))
	if !present || problem != nil || !got.Gift {
		t.Errorf("with a body: %+v, present %t, %v", got, present, problem)
	}
}

func TestOnlyJSONIsAccepted(t *testing.T) {
	for contentType, fine := range map[string]bool{
		"": true, "application/json": true, "Application/JSON; charset=utf-8": true, "application/merge-patch+json": true,
		"text/plain": false, "application/x-www-form-urlencoded": false, "application/jsonx": false, ";": false,
	} {
		r := newRequest(t, http.MethodPost, "/", plainOrder, "Content-Type", contentType)
		_, problem := Decode[order](r)
		if fine != (problem == nil) || problem != nil && problem.Status != http.StatusUnsupportedMediaType {
			t.Errorf("%q: %v", contentType, problem)
		}
	}
	_, problem := Decode[order](newRequest(t, http.MethodPost, "/", plainOrder, "Content-Encoding", "gzip"))
	if problem == nil || problem.Status != http.StatusUnsupportedMediaType {
		t.Errorf("gzip: %v", problem)
	}
}

func TestABodyThatBreaksOffIsRefused(t *testing.T) {
	r := newRequest(t, http.MethodPost, "/", "x")
	r.ContentLength = -1
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(plainOrder), iotest.ErrReader(errors.New("reset"))))
	if _, problem := Decode[order](r); problem == nil || problem.Detail != "the body could not be read to its end" {
		t.Errorf("%v", problem)
	}
}

func TestABodyMayArriveInPieces(t *testing.T) {
	r := newRequest(t, http.MethodPost, "/", "x")
	r.ContentLength = -1
	r.Body = io.NopCloser(iotest.OneByteReader(strings.NewReader(plainOrder)))
	if got, problem := Decode[order](r); problem != nil || got.Items[0].SKU != "A" {
		t.Errorf("%+v, %v", got, problem)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(plainOrder)
	f.Add(`{"note":"\ud800"}`)
	f.Fuzz(func(t *testing.T, body string) {
		_, problem := Decode[order](newRequest(t, http.MethodPost, "/", body))
		if problem != nil && (problem.Status < 400 || problem.Status > 499 || problem.Detail == "") {
			t.Errorf("%q: %+v", body, problem)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	body := strings.NewReader(plainOrder)
	r := newRequest(b, http.MethodPost, "/", plainOrder, "Content-Type", "application/json")
	r.Body = io.NopCloser(body)
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(plainOrder)
		if _, problem := Decode[order](r); problem != nil {
			b.Fatal(problem)
		}
	}
}

func BenchmarkDecodeWithoutBody(b *testing.B) {
	r := newRequest(b, http.MethodPost, "/", "")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, problem := DecodeOptional[order](r); problem != nil {
			b.Fatal(problem)
		}
	}
}
