package reconcile

import (
	"context"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// floorOf is the sequence up to which the ledger has written the stream, which was
// in this state before the snapshot. trusted is false when the stream does not have the
// message that the ledger wrote last; then nothing counts as written.
//
// A copy of the stream's files that is put back keeps its identity and gives
// sequences out again that the ledger has as written. To believe the ledger then
// would leave out grants that nobody else knows of. Reading too much is harmless.
func (r *Reconciler) floorOf(ctx context.Context, snap *ledger.Snapshot, at stream.Status) (floor uint64, trusted bool, err error) {
	floor = snap.Floor()
	nothing := max(at.FirstSeq, 1) - 1
	if floor <= nothing {
		return floor, true, nil // so there is nothing to mistake
	}
	if floor == at.LastSeq && snap.FloorAt() == at.LastTime.UnixNano() {
		return floor, true, nil // even if that message was purged
	}
	written, found, err := r.stream.TimestampAt(ctx, floor)
	if err != nil {
		return 0, false, err
	}
	if !found || written != snap.FloorAt() {
		return nothing, false, nil
	}
	return floor, true, nil
}
