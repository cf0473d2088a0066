package admin

import (
	"slices"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// move is one step of a sale's life: where it may begin and where it ends.
type move struct {
	verb string
	from []sale.Status
	to   sale.Status
}

// The moves of a sale; see the package comment of pkg/sale.
var (
	approve = move{"approve", []sale.Status{sale.StatusDraft}, sale.StatusApproved}
	pause   = move{"pause", []sale.Status{sale.StatusApproved}, sale.StatusPaused}
	resume  = move{"resume", []sale.Status{sale.StatusPaused}, sale.StatusApproved}
	end     = move{"end", []sale.Status{sale.StatusApproved, sale.StatusPaused}, sale.StatusEnded}
)

// apply makes the move. A sale that is there already stays as it is, so that a
// move may be repeated; from anywhere else it is a conflict.
func (m move) apply(s *sale.Sale) error {
	if s.Status == m.to {
		return nil
	}
	if !slices.Contains(m.from, s.Status) {
		return wrongState(s.Status, "a sale that is "+string(s.Status)+" can't "+m.verb)
	}
	s.Status = m.to
	return nil
}
