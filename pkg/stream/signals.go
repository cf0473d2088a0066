package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

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

// reconcileQueueMax is how many requests may wait in one process; more are dropped,
// and their askers' time runs out.
const reconcileQueueMax = 1024

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

// ServeReconcile answers the requests of AskReconcile until ctx ends, each by one
// of the processes that serve. Up to Config.ReconcilesMax calls of fn run at a time; more requests
// wait, and their askers may be gone when their turn comes. When ctx has ended the
// calls in hand see it, and ServeReconcile returns after them.
func (s *Stream) ServeReconcile(ctx context.Context,
	fn func(ctx context.Context, saleID, reason string) (reply []byte, err error)) error {
	requests := make(chan *nats.Msg, reconcileQueueMax)
	sub, err := s.nc.ChanQueueSubscribe(reconcileSubject(anySale), reconcilersQueue, requests)
	if err != nil {
		return fmt.Errorf("serve reconcile requests: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	var workers sync.WaitGroup
	defer workers.Wait()
	for range s.cfg.ReconcilesMax {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case msg := <-requests:
					s.serveReconcile(ctx, msg, fn)
				}
			}
		})
	}
	<-ctx.Done()
	return nil
}

func (s *Stream) serveReconcile(ctx context.Context, msg *nats.Msg,
	fn func(ctx context.Context, saleID, reason string) ([]byte, error)) {
	saleID := strings.TrimPrefix(msg.Subject, reconcilePrefix)
	var request reconcileRequest
	if err := json.Unmarshal(msg.Data, &request); err != nil || !sale.ValidID(saleID) {
		return // not from AskReconcile
	}
	var answer reconcileReply
	reply, err := fn(ctx, saleID, request.Reason)
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.Reply = reply
	}
	data, err := json.Marshal(answer)
	if err == nil {
		err = msg.Respond(data)
	}
	if err != nil {
		s.cfg.Logger.Warn("answer to a reconcile request was not sent", "sale_id", saleID, "error", err)
	}
}
