package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Bounds of a stream of events.
const (
	// A client that was cut off comes back after retryMin to twice that: those of a
	// process that stops don't come back together.
	retryMin = time.Second
	// sendTimeout is how long a client may take to take one event in.
	sendTimeout = 10 * time.Second
)

// watch sends the status of an order, and then each change, as server-sent events.
// The stream ends after a status that is final, when it was long enough, and when
// the server stops; the client comes back by itself and hears the status then. One that comes
// back after the final status hears 204, which tells it to stay away.
func (a *API) watch(w http.ResponseWriter, r *http.Request) {
	user, problem := a.identity.User(r)
	if problem != nil {
		web.Fail(w, r, problem)
		return
	}
	orderID := r.PathValue("order_id")
	v, err := a.look(r.Context(), user, orderID)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if v.Status.Ended() && r.Header.Get("Last-Event-ID") == v.eventID() {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	place, ok := a.waiters.join(orderID)
	if !ok {
		web.Fail(w, r, web.Unavailable(web.CodeUnavailable, "too many requests wait for orders; ask without waiting", retryAfter))
		return
	}
	defer place.leave()
	s := openEvents(w)
	if s.status(&v) != nil {
		return // the client is gone
	}
	a.follow(r.Context(), user, place, v, s)
}

// follow sends changes until one is final, the time is over, or the client or the
// server goes away. While ledger or Redis can't be asked it goes on looking: the
// client would not come back after a problem.
func (a *API) follow(ctx context.Context, user string, place *waiter, known View, s *events) {
	over := time.NewTimer(a.cfg.WatchMax)
	defer over.Stop()
	beat := time.NewTicker(a.cfg.Heartbeat)
	defer beat.Stop()
	for attempt := 1; !known.Status.Ended(); attempt++ {
		pause := time.NewTimer(backoff.Delay(attempt, a.cfg.PollMin, a.cfg.WatchPoll))
		ended := false
		select {
		case <-place.told():
			place.again()
		case <-pause.C:
		case <-beat.C:
			ended = s.beat() != nil
		case <-over.C:
			ended = true
		case <-web.Draining(ctx):
			ended = true
		case <-ctx.Done():
			ended = true
		}
		pause.Stop()
		if ended {
			return
		}
		v, err := a.look(ctx, user, known.OrderID)
		if errors.Is(err, errNoOrder) {
			return
		}
		if err != nil || v.eventID() == known.eventID() {
			continue
		}
		if s.status(&v) != nil {
			return
		}
		known, attempt = v, 0
	}
}

// eventID changes with every change of the order.
func (v *View) eventID() string {
	var returned int64
	for _, l := range v.Items {
		returned += l.Returned
	}
	return fmt.Sprintf("%s-%d-%d", v.Status, v.UpdatedAt.UnixMilli(), returned)
}

// events is a response of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// openEvents begins the response. The server's own time limits are for answers that
// come at once; each event has its own.
func openEvents(w http.ResponseWriter) *events {
	s := &events{w: w, control: http.NewResponseController(w)}
	// Where there is no connection to set limits for, none can pass.
	_ = s.control.SetReadDeadline(time.Time{})
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would collect what should be sent at once
	return s
}

// status sends an order, and when to come back should the stream break off.
func (s *events) status(v *View) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode order %s: %w", v.OrderID, err)
	}
	retry := retryMin + rand.N(retryMin)
	return s.send(fmt.Sprintf("event: status\nid: %s\nretry: %d\ndata: %s\n\n", v.eventID(), retry.Milliseconds(), body))
}

// beat sends a comment.
func (s *events) beat() error { return s.send(":\n\n") }

func (s *events) send(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := s.w.Write([]byte(text)); err != nil { //nolint:gosec // events are no HTML, and no browser takes them for it
		return fmt.Errorf("send an event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}
