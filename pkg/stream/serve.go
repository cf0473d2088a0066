package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// reconcileQueueMax is how many requests may wait in one process; more are dropped,
// and their askers' time runs out.
const reconcileQueueMax = 1024

// ServeReconcile answers the requests of AskReconcile until ctx ends, each by one
// of the processes that serve. Up to Config.ReconcilesMax calls of fn run at a time,
// one per sale; more requests wait, and their askers may be gone when their turn
// comes. Requests of one sale for the same reason share one call, those that come while
// it runs too. When ctx has ended the calls in hand see it, and ServeReconcile
// returns after them.
func (s *Stream) ServeReconcile(ctx context.Context,
	fn func(ctx context.Context, saleID, reason string) (reply []byte, err error)) error {
	requests := make(chan *nats.Msg, reconcileQueueMax)
	sub, err := s.nc.ChanQueueSubscribe(reconcileSubject(anySale), reconcilersQueue, requests)
	if err != nil {
		return fmt.Errorf("serve reconcile requests: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	desk := &reconcileDesk{sales: map[string][]*reconcileCall{}, due: make(chan string, reconcileQueueMax)}
	var workers sync.WaitGroup
	defer workers.Wait()
	for range s.cfg.ReconcilesMax {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case saleID := <-desk.due:
					s.serveReconcile(ctx, desk, saleID, fn)
				}
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-requests:
			desk.take(msg)
		}
	}
}

// serveReconcile makes the first call that a sale waits for, and answers it.
func (s *Stream) serveReconcile(ctx context.Context, desk *reconcileDesk, saleID string,
	fn func(ctx context.Context, saleID, reason string) ([]byte, error)) {
	var answer reconcileReply
	reply, err := fn(ctx, saleID, desk.reason(saleID))
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.Reply = reply
	}
	data, err := json.Marshal(answer)
	for _, msg := range desk.done(saleID) {
		err = errors.Join(err, msg.Respond(data))
	}
	if err != nil {
		s.cfg.Logger.Warn("answer to a reconcile request was not sent", "sale_id", saleID, "error", err)
	}
}

// reconcileDesk is the requests that wait, or are being served. A sale has one
// worker at most, so that many requests for it leave room for other sales.
type reconcileDesk struct {
	mu      sync.Mutex
	sales   map[string][]*reconcileCall // the first one is running, or the sale is due
	waiting int                         // requests in sales
	due     chan string                 // sales without a worker; never more than requests
}

// reconcileCall is one call and those who wait for its answer.
type reconcileCall struct {
	reason string
	askers []*nats.Msg
}

func (d *reconcileDesk) take(msg *nats.Msg) {
	saleID := strings.TrimPrefix(msg.Subject, reconcilePrefix)
	var request reconcileRequest
	if err := json.Unmarshal(msg.Data, &request); err != nil || !sale.ValidID(saleID) {
		return // not from AskReconcile
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == reconcileQueueMax {
		return
	}
	d.waiting++
	calls := d.sales[saleID]
	same := slices.IndexFunc(calls, func(c *reconcileCall) bool { return c.reason == request.Reason })
	if same >= 0 {
		calls[same].askers = append(calls[same].askers, msg)
		return
	}
	d.sales[saleID] = append(calls, &reconcileCall{reason: request.Reason, askers: []*nats.Msg{msg}})
	if len(calls) == 0 {
		d.due <- saleID
	}
}

func (d *reconcileDesk) reason(saleID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sales[saleID][0].reason
}

// done ends the call of a sale, returns who asked for it, and has the next one made.
func (d *reconcileDesk) done(saleID string) []*nats.Msg {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.sales[saleID]
	d.waiting -= len(calls[0].askers)
	if len(calls) > 1 {
		d.sales[saleID] = calls[1:]
		d.due <- saleID
	} else {
		delete(d.sales, saleID)
	}
	return calls[0].askers
}
