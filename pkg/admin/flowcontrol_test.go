package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/admin"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

const (
	getFlow  = "GET /admin/v1/flow-control"
	putFlow  = "PUT /admin/v1/flow-control"
	flowPath = "/admin/v1/flow-control"
)

func wrongFlowControls() []wrong {
	all := append(unread(putFlow, flowPath),
		field(getFlow, flowPath+"?sale=s", nil, "sale"),
		wrong{putFlow, flowPath, nil, nil, 400, "bad_request", ""})
	for body, name := range map[string]string{
		`{"per_user":{"rate":-1,"burst":1}}`:      "per_user.rate",
		`{"per_user":{"rate":1000001,"burst":1}}`: "per_user.rate",
		`{"per_user":{"rate":"1","burst":1}}`:     "per_user.rate",
		`{"per_user":{"burst":1}}`:                "per_user.rate",
		`{"per_user":{"rate":1}}`:                 "per_user.burst",
		`{"per_user":{"rate":1,"burst":0}}`:       "per_user.burst",
		`{"per_user":{"rate":1,"burst":1.5}}`:     "per_user.burst",
		`{"per_user":{"rate":1,"brust":1}}`:       "per_user.brust",
		`{"per_user":5}`:                          "per_user",
		`{"per_ip":{"rate":1,"burst":1000001}}`:   "per_ip.burst",
		`{"per_ip":[]}`:                           "per_ip",
		`{"in_flight_max":0}`:                     "in_flight_max",
		`{"in_flight_max":1000001}`:               "in_flight_max",
		`{"in_flight_max":"many"}`:                "in_flight_max",
		`{"in_flight_max":1e30}`:                  "in_flight_max",
		`{"revision":7}`:                          "revision",
	} {
		all = append(all, field(putFlow, flowPath, body, name))
	}
	return all
}

func TestAnOperatorChangesTheFlowControlFieldByField(t *testing.T) {
	p := openPlane(t, admin.Config{})
	get := func() string { return p.ok(http.StatusOK, "GET", flowPath, nil).text }
	requireText := func(what, got, want string) {
		t.Helper()
		if got, _, _ := strings.Cut(got, `,"revision"`); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	requireText("at first", get(), `{"per_user":null,"per_ip":null,"in_flight_max":null`)
	p.ok(http.StatusOK, "GET", flowPath, nil).has(t, "revision", 0)

	first := p.ok(http.StatusOK, "PUT", flowPath, `{"per_user":{"rate":2.5,"burst":5},"in_flight_max":100}`)
	requireText("two fields", first.text, `{"per_user":{"rate":2.5,"burst":5},"per_ip":null,"in_flight_max":100`)
	requireText("two fields, looked at", get(), `{"per_user":{"rate":2.5,"burst":5},"per_ip":null,"in_flight_max":100`)
	second := p.ok(http.StatusOK, "PUT", flowPath, `{"per_ip":{"rate":0},"in_flight_max":null}`)
	requireText("a third, one taken back", second.text, `{"per_user":{"rate":2.5,"burst":5},"per_ip":{"rate":0},"in_flight_max":null`)
	if a, b := first.body["revision"].(float64), second.body["revision"].(float64); a < 1 || b <= a {
		t.Errorf("revisions %v and %v", a, b)
	}
	p.ok(http.StatusOK, "PUT", flowPath, `{}`).has(t, "revision", int(second.body["revision"].(float64)))

	before := get()
	p.refused(http.StatusBadRequest, "invalid_field", "PUT", flowPath, `{"per_user":null,"in_flight_max":0}`)
	if after := get(); after != before {
		t.Errorf("a refused change made it %s from %s", after, before)
	}
	requireText("all taken back", p.ok(http.StatusOK, "PUT", flowPath, `{"per_user":null,"per_ip":null}`).text, `{"per_user":null,"per_ip":null,"in_flight_max":null`)
}

func TestAFlowControlThatCantBeReadIsToldAndReplaced(t *testing.T) {
	p := openPlane(t, admin.Config{})
	js, err := jetstream.New(p.nats.Conn())
	must(t, err)
	bucket, err := js.KeyValue(t.Context(), stream.ControlBucket)
	must(t, err)
	_, err = bucket.Put(t.Context(), "flow", []byte(`{"per_user":{"rate":-1}}`))
	must(t, err)
	r := p.refused(http.StatusConflict, "conflict", "GET", flowPath, nil)
	if detail, _ := r.body["detail"].(string); !strings.Contains(detail, "per_user.rate") {
		t.Errorf("the problem doesn't say what is wrong: %s", r.text)
	}
	p.ok(http.StatusOK, "PUT", flowPath, `{"in_flight_max":7}`).has(t, "per_user", nil, "in_flight_max", 7)
	p.ok(http.StatusOK, "GET", flowPath, nil).has(t, "per_user", nil, "in_flight_max", 7)
}

func TestWithoutNATSTheFlowControlCantBeChanged(t *testing.T) {
	p := openPlane(t, admin.Config{})
	p.nats.Kill()
	for _, method := range []string{"GET", "PUT"} {
		r := p.refused(http.StatusServiceUnavailable, "unavailable", method, flowPath, map[string]string{"GET": "", "PUT": "{}"}[method])
		if r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", method)
		}
	}
}
