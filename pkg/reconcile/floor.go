package reconcile

import (
	"context"

	"github.com/doorbuster/doorbuster/pkg/ledger"
)

// floorOf is the sequence up to which the ledger has written the stream whose
// first sequence is firstSeq. trusted is false when the stream does not have the
// message that the ledger wrote last; then nothing counts as written.
//
// A copy of the stream's files that is put back keeps its identity and gives
// sequences out again that the ledger has as written. To believe the ledger then
// would leave out grants that nobody else knows of. Reading too much is harmless.
func (r *Reconciler) floorOf(ctx context.Context, snap *ledger.Snapshot, firstSeq uint64) (floor uint64, trusted bool, err error) {
	floor = snap.Floor()
	if floor < max(firstSeq, 1) {
		return floor, true, nil // nothing is written, so there is nothing to mistake
	}
	at, found, err := r.stream.TimestampAt(ctx, floor)
	if err != nil {
		return 0, false, err
	}
	if !found || at != snap.FloorAt() {
		return max(firstSeq, 1) - 1, false, nil
	}
	return floor, true, nil
}
