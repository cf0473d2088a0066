package fulfil

import (
	"context"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// Ends lists the states of deliveries that will not be called again, for metrics.
var Ends = []string{
	string(ledger.DeliveryDelivered), string(ledger.DeliveryFailed), string(ledger.DeliveryParked), string(ledger.DeliveryDropped),
}

// attempt makes one claimed delivery and writes what came of it. What can't be
// written comes again when the claim is over.
func (s *Sender) attempt(ctx context.Context, d *ledger.Delivery, c *call, of claim) {
	defer s.signal()
	defer c.end() // before the signal
	if time.Since(of.asked) > s.cfg.RecordTimeout/2 {
		return // we were held up: the call might outlast the claim
	}
	begun := time.Now()
	a := s.caller.call(ctx, d)
	c.answered()
	s.Metrics.Calls.Of(a.result).Inc()
	s.Metrics.CallSeconds.Observe(time.Since(begun).Seconds())

	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.RecordTimeout)
	defer cancel()
	if err := s.record(record, d, a, of.now()); err != nil {
		s.Metrics.Failures.Inc()
		s.Log.WarnContext(ctx, "what came of a webhook is not written, it will be sent again",
			"order_id", d.OrderID, "host", d.Host, "result", a.result, "error", err)
	}
}

// signal lets Run look again.
func (s *Sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// record writes what came of a call; now is by the database's clock.
func (s *Sender) record(ctx context.Context, d *ledger.Delivery, a answer, now time.Time) error {
	switch {
	case a.result == resultDelivered:
		if err := s.Ledger.Fulfil(ctx, *d); err != nil {
			return err
		}
		s.Metrics.Ended.Of(string(ledger.DeliveryDelivered)).Inc()
		s.Changed(d.OrderID)
		return nil
	case a.result == resultStopped:
		return s.Ledger.Postpone(ctx, *d, now, a.why)
	case a.result == resultGone || !now.Before(d.GiveUpAt):
		return s.giveUp(ctx, d, a)
	}
	return s.Ledger.Postpone(ctx, *d, s.next(d, a, now), a.why)
}

// next is when to try again: later and later, as late as the receiver asks for, but
// not after the delivery's time is up; then it is tried once more.
func (s *Sender) next(d *ledger.Delivery, a answer, now time.Time) time.Time {
	delay := max(backoff.Delay(d.Attempts, s.cfg.RetryBase, s.cfg.RetryMax), min(a.after, s.cfg.RetryMax))
	if next := now.Add(delay); next.Before(d.GiveUpAt) {
		return next
	}
	return d.GiveUpAt
}

// giveUp ends a delivery as its sale's rules say.
func (s *Sender) giveUp(ctx context.Context, d *ledger.Delivery, a answer) error {
	status, giveback, err := s.Ledger.GiveUp(ctx, *d, a.why)
	if err != nil || status == "" {
		return err
	}
	s.Metrics.Ended.Of(string(status)).Inc()
	s.Log.WarnContext(ctx, "webhook given up",
		"order_id", d.OrderID, "host", d.Host, "attempts", d.Attempts, "reason", a.why, "delivery", string(status))
	if giveback == nil {
		return nil
	}
	s.Changed(d.OrderID)
	if err := s.Givebacks.Return(ctx, *giveback); err != nil {
		// The ledger has decided; this is only later than it could be.
		s.Log.WarnContext(ctx, "stock not given back yet, the relay will",
			"sale_id", giveback.SaleID, "giveback", giveback.ID, "error", err)
	}
	return nil
}
