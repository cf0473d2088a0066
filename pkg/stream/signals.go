package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// ErrNoReconciler says that no reconciler listens.
var ErrNoReconciler = errors.New("no reconciler listens")

// Restocked tells all grab nodes that stock of a sale came back, so that they drop
// their sold-out marks. Nobody answers: whoever misses it has marks that end soon by themselves.
func (s *Stream) Restocked(saleID string) error {
	if err := s.nc.Publish(restockedSubject(saleID), nil); err != nil {
		return fmt.Errorf("signal that sale %s was restocked: %w", saleID, err)
	}
	return nil
}

// SubscribeRestocked calls fn for every restocked sale, one call at a time, until
// the returned function is called. It survives reconnects.
func (s *Stream) SubscribeRestocked(fn func(saleID string)) (unsubscribe func(), err error) {
	sub, err := s.nc.Subscribe(restockedSubject(anySale), func(msg *nats.Msg) {
		if id := strings.TrimPrefix(msg.Subject, restockedPrefix); sale.ValidID(id) {
			fn(id)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to restocked sales: %w", err)
	}
	// An error means that the connection is closed, and the subscription with it.
	return func() { _ = sub.Unsubscribe() }, nil
}

// reconcileRequest and reconcileReply travel between AskReconcile and ServeReconcile.
type reconcileRequest struct {
	Reason string `json:"reason"`
}

type reconcileReply struct {
	Reply []byte `json:"reply,omitempty"`
	Error string `json:"error,omitempty"`
}

// AskReconcile asks one of the reconcilers to reconcile a sale and returns what it
// answers when it is done; ctx bounds the wait. The error is ErrNoReconciler when
// none listens, and that of the reconciler when it failed.
func (s *Stream) AskReconcile(ctx context.Context, saleID, reason string) (reply []byte, err error) {
	if !s.nc.IsConnected() {
		return nil, fmt.Errorf("ask to reconcile sale %s: %w", saleID, ErrNotConnected)
	}
	request, err := json.Marshal(reconcileRequest{Reason: reason})
	if err != nil {
		return nil, fmt.Errorf("ask to reconcile sale %s: %w", saleID, err)
	}
	msg, err := s.nc.RequestWithContext(ctx, reconcileSubject(saleID), request)
	if errors.Is(err, nats.ErrNoResponders) {
		err = ErrNoReconciler
	}
	if err != nil {
		return nil, fmt.Errorf("ask to reconcile sale %s: %w", saleID, err)
	}
	var answer reconcileReply
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, fmt.Errorf("read the answer to reconciling sale %s: %w", saleID, err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("reconcile sale %s: %s", saleID, answer.Error)
	}
	return answer.Reply, nil
}
