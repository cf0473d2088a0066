package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// flowControlKey is the one key of ControlBucket.
const flowControlKey = "flow"

// Bounds of the flow control, those of the settings of a grab process.
const (
	MaxRate     = 1_000_000 // grabs per second
	MaxBurst    = 1_000_000 // grabs
	MaxInFlight = 1_000_000 // grabs
)

// FlowControl is what every grab process obeys from the moment it is stored. What is nil
// is left to each process's own configuration.
type FlowControl struct {
	PerUser     *Rate  `json:"per_user,omitempty"`      // of one user, in one process
	PerIP       *Rate  `json:"per_ip,omitempty"`        // of one client address, in one process
	InFlightMax *int64 `json:"in_flight_max,omitempty"` // grabs under way in one process, 1 to MaxInFlight
}

// Rate is a token bucket.
type Rate struct {
	Rate  float64 `json:"rate"`            // grabs per second, up to MaxRate; 0 is no limit
	Burst int64   `json:"burst,omitempty"` // grabs at once, 1 to MaxBurst; of no meaning without a limit
}

// ErrFlowControl says that what is stored as flow control can't be read.
var ErrFlowControl = errors.New("the stored flow control is not readable")

// Validate returns a *sale.FieldError for the first field that is out of range.
func (f *FlowControl) Validate() error {
	if err := f.PerUser.validate("per_user"); err != nil {
		return err
	}
	if err := f.PerIP.validate("per_ip"); err != nil {
		return err
	}
	if n := f.InFlightMax; n != nil && (*n < 1 || *n > MaxInFlight) {
		return &sale.FieldError{Field: "in_flight_max", Message: fmt.Sprintf("must be 1 to %d grabs", MaxInFlight)}
	}
	return nil
}

func (r *Rate) validate(field string) error {
	if r == nil {
		return nil
	}
	if !(r.Rate >= 0 && r.Rate <= MaxRate) { // NaN, which compares to nothing, is refused
		return &sale.FieldError{Field: field + ".rate", Message: fmt.Sprintf("must be 0 (no limit) to %d grabs per second", MaxRate)}
	}
	least := int64(1)
	if r.Rate == 0 {
		least = 0
	}
	if r.Burst < least || r.Burst > MaxBurst {
		return &sale.FieldError{Field: field + ".burst", Message: fmt.Sprintf("must be 1 to %d grabs", MaxBurst)}
	}
	return nil
}

// FlowControl returns what is stored and its revision; nothing and 0 when nothing
// is. The error is ErrFlowControl where it can't be read.
func (s *Stream) FlowControl(ctx context.Context) (f FlowControl, revision uint64, err error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return FlowControl{}, 0, err
	}
	defer cancel()
	bucket, err := s.bucket(ctx, ControlBucket)
	if err != nil {
		return FlowControl{}, 0, err
	}
	entry, err := bucket.Get(ctx, flowControlKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return FlowControl{}, 0, nil
	}
	if err != nil {
		return FlowControl{}, 0, fmt.Errorf("get flow control: %w", err)
	}
	f, err = decodeFlowControl(entry.Value())
	return f, entry.Revision(), err
}

// ChangeFlowControl edits what is stored, nothing at first, and returns what is
// then stored. An error of edit, and a result that is out of range (*sale.FieldError), store
// nothing. edit may be called again when others change it at the same time.
func (s *Stream) ChangeFlowControl(ctx context.Context, edit func(*FlowControl) error) (f FlowControl, revision uint64, err error) {
	write := func(ctx context.Context, bucket jetstream.KeyValue, have jetstream.KeyValueEntry) error {
		f, revision = FlowControl{}, 0
		if have != nil {
			// What can't be read is in force nowhere: the change begins with nothing.
			f, _ = decodeFlowControl(have.Value())
			revision = have.Revision()
		}
		if err := edit(&f); err != nil {
			return err
		}
		if err := f.Validate(); err != nil {
			return err
		}
		data, err := json.Marshal(f)
		switch {
		case err != nil:
			return err
		case have == nil:
			revision, err = bucket.Create(ctx, flowControlKey, data)
		case !bytes.Equal(have.Value(), data):
			revision, err = bucket.Update(ctx, flowControlKey, data, have.Revision())
		}
		return err
	}
	if err := s.change(ctx, ControlBucket, flowControlKey, write); err != nil {
		return FlowControl{}, 0, fmt.Errorf("change flow control: %w", err)
	}
	return f, revision, nil
}

// decodeFlowControl is strict: a field that this version doesn't know is a rule
// that it would not obey.
func decodeFlowControl(data []byte) (FlowControl, error) {
	var f FlowControl
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err == nil {
		err = f.Validate()
	}
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("it goes on after the JSON value")
		}
	}
	if err != nil {
		return FlowControl{}, fmt.Errorf("%w: %w", ErrFlowControl, err)
	}
	return f, nil
}

// FlowControlWatch follows the flow control.
type FlowControlWatch struct {
	watch
	update func(f FlowControl, revision uint64)
}

// WatchFlowControl returns a watch that calls update with what is stored (nothing
// and revision 0 when nothing is), and then for every change. The calls come from one goroutine,
// Run's; after a lost connection the same may be told again. What can't be read is logged
// and not told: what was told last stays in force.
func (s *Stream) WatchFlowControl(update func(f FlowControl, revision uint64)) *FlowControlWatch {
	w := &FlowControlWatch{update: update}
	w.watch = newWatch(s, ControlBucket, w.take, func(seen map[string]bool) {
		if !seen[flowControlKey] {
			update(FlowControl{}, 0)
		}
	})
	return w
}

func (w *FlowControlWatch) take(entry jetstream.KeyValueEntry) {
	if entry.Key() != flowControlKey {
		return
	}
	if entry.Operation() != jetstream.KeyValuePut {
		w.update(FlowControl{}, entry.Revision())
		return
	}
	f, err := decodeFlowControl(entry.Value())
	if err != nil {
		w.stream.cfg.Logger.Error("flow control is not readable and was not applied", "revision", entry.Revision(), "error", err)
		return
	}
	w.update(f, entry.Revision())
}
