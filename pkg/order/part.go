package order

import (
	"slices"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// delivery is a message that is being written.
type delivery struct {
	*stream.Message
	index   int        // of its result
	batch   sale.Batch // without grants for a fence
	blamed  []blamed   // its grants that can't be written
	written bool       // all of it is, and its progress
	stuck   bool       // it can't be written now, and no grant is to blame
}

// blamed is a grant that can't be written.
type blamed struct {
	grant *sale.Grant
	err   error
}

// part is what one transaction writes: portions of messages, by their sequence.
type part []portion

// portion is some grants of a message.
type portion struct {
	delivery *delivery
	grants   []sale.Grant
	// whole: with these grants the message is written, and its sequence is progress.
	whole bool
}

// batch is the part as the ledger takes it.
func (p part) batch() ledger.Batch {
	b := ledger.Batch{StreamID: p[0].delivery.StreamID}
	for _, s := range p {
		d := s.delivery
		if len(s.grants) > 0 {
			batch := d.batch
			batch.Grants = s.grants
			b.Messages = append(b.Messages, ledger.Message{Seq: d.Seq, SaleID: d.SaleID, Batch: batch})
		}
		if s.whole {
			b.Done = append(b.Done, ledger.Range{First: d.Seq, Last: d.Seq, LastAt: d.Timestamp.UnixNano()})
		}
	}
	return b
}

func (p part) grants() int {
	n := 0
	for _, s := range p {
		n += len(s.grants)
	}
	return n
}

// deliveries is how often the message was delivered that came most often.
func (p part) deliveries() int {
	most := 0
	for _, s := range p {
		most = max(most, s.delivery.NumDelivered)
	}
	return most
}

// bySale splits a part at the borders of sales, and keeps the order within each:
// what keeps one sale from being written, such as a lock on its items, mostly
// spares the others.
func (p part) bySale() []part {
	var parts []part
	place := make(map[string]int)
	for _, s := range p {
		i, ok := place[s.delivery.SaleID]
		if !ok {
			i = len(parts)
			place[s.delivery.SaleID] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], s)
	}
	return parts
}

// halves splits a part between messages or, when it is of one, between its
// grants. A part of one grant, or of a message without grants, can't be split.
func (p part) halves() (part, part, bool) {
	if len(p) > 1 {
		return p[:len(p)/2], p[len(p)/2:], true
	}
	s := p[0]
	n := len(s.grants)
	if n < 2 {
		return nil, nil, false
	}
	return part{{delivery: s.delivery, grants: s.grants[:n/2]}}, part{{delivery: s.delivery, grants: s.grants[n/2:]}}, true
}

// stuck reports whether some of a part can't be written now.
func (p part) stuck() bool {
	return slices.ContainsFunc(p, func(s portion) bool { return s.delivery.stuck })
}

func (p part) setStuck() {
	for _, s := range p {
		s.delivery.stuck = true
	}
}

// without returns the part without the grants that the ledger names, and these.
func (p part) without(poison []ledger.PoisonGrant) (rest part, named part) {
	type key struct {
		seq     uint64
		orderID string
	}
	bad := make(map[key]bool, len(poison))
	for i := range poison {
		bad[key{poison[i].Seq, poison[i].Grant.OrderID}] = true
	}
	for _, s := range p {
		good := portion{delivery: s.delivery, whole: s.whole}
		for i := range s.grants {
			if bad[key{s.delivery.Seq, s.grants[i].OrderID}] {
				named = append(named, portion{delivery: s.delivery, grants: s.grants[i : i+1]})
				good.whole = false
				continue
			}
			good.grants = append(good.grants, s.grants[i])
		}
		if good.whole || len(good.grants) > 0 {
			rest = append(rest, good)
		}
	}
	return rest, named
}
