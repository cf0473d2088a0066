package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// FlowControls holds what every grab process obeys. A *stream.Stream has it.
type FlowControls interface {
	FlowControl(ctx context.Context) (f stream.FlowControl, revision uint64, err error)
	ChangeFlowControl(ctx context.Context, edit func(*stream.FlowControl) error) (f stream.FlowControl, revision uint64, err error)
}

// flowControlView is the flow control as the API shows it; null is left to each
// process's own configuration.
type flowControlView struct {
	PerUser     *stream.Rate `json:"per_user"`
	PerIP       *stream.Rate `json:"per_ip"`
	InFlightMax *int64       `json:"in_flight_max"`
	// Revision is what a process shows in doorbuster_grab_flow_control_revision once
	// it obeys; 0 is before the first change.
	Revision uint64 `json:"revision"`
}

func viewFlowControl(f stream.FlowControl, revision uint64) flowControlView {
	return flowControlView{PerUser: f.PerUser, PerIP: f.PerIP, InFlightMax: f.InFlightMax, Revision: revision}
}

// flowControlChange is the body of PUT /admin/v1/flow-control: what is absent stays as it
// is, null goes back to each process's own configuration.
type flowControlChange struct {
	PerUser     json.RawMessage `json:"per_user"`
	PerIP       json.RawMessage `json:"per_ip"`
	InFlightMax json.RawMessage `json:"in_flight_max"`
}

// rateBody is a rate; a pointer tells a forgotten one from none.
type rateBody struct {
	Rate  *float64 `json:"rate"`
	Burst int64    `json:"burst"`
}

func (c *flowControlChange) apply(f *stream.FlowControl) error {
	if err := applyRate("per_user", c.PerUser, &f.PerUser); err != nil {
		return err
	}
	if err := applyRate("per_ip", c.PerIP, &f.PerIP); err != nil {
		return err
	}
	if c.InFlightMax == nil {
		return nil
	}
	most, problem := web.DecodeField[*int64]("in_flight_max", c.InFlightMax)
	if problem != nil {
		return problem
	}
	f.InFlightMax = most
	return nil
}

func applyRate(name string, text json.RawMessage, rate **stream.Rate) error {
	if text == nil {
		return nil
	}
	body, problem := web.DecodeField[*rateBody](name, text)
	switch {
	case problem != nil:
		return problem
	case body == nil:
		*rate = nil
	case body.Rate == nil:
		return web.InvalidField(name+".rate", "is required: grabs per second, 0 is no limit")
	default:
		*rate = &stream.Rate{Rate: *body.Rate, Burst: body.Burst}
	}
	return nil
}

func (a *API) getFlowControl(r *http.Request) (answer, error) {
	if q := newQuery(r); q.failed != nil {
		return answer{}, q.failed
	}
	f, revision, err := a.Stream.FlowControl(r.Context())
	if errors.Is(err, stream.ErrFlowControl) {
		return answer{}, web.Conflict(web.CodeConflict, err.Error()+"; it is in force nowhere, put another one")
	}
	if err != nil {
		return answer{}, err
	}
	return ok(viewFlowControl(f, revision)), nil
}

func (a *API) putFlowControl(r *http.Request) (answer, error) {
	change, problem := web.Decode[flowControlChange](r)
	if problem != nil {
		return answer{}, problem
	}
	f, revision, err := a.Stream.ChangeFlowControl(context.WithoutCancel(r.Context()), change.apply)
	if err != nil {
		return answer{}, err
	}
	a.Log.InfoContext(r.Context(), "flow control changed", "revision", revision)
	return ok(viewFlowControl(f, revision)), nil
}
