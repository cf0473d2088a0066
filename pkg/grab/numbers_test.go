package grab

import "testing"

func requireAcked(t *testing.T, n *numbers, wantNumber, wantAcked uint64) {
	t.Helper()
	if number, acked := n.next(); number != wantNumber || acked != wantAcked {
		t.Fatalf("number %d, acked %d; want %d and %d", number, acked, wantNumber, wantAcked)
	}
}

func TestOnlySettledBatchesCountAsAcked(t *testing.T) {
	var n numbers
	requireAcked(t, &n, 1, 0)
	requireAcked(t, &n, 2, 0)
	n.inStream(2, 1)
	requireAcked(t, &n, 3, 0)
	n.inStream(1, 1)
	if through, ok := n.untrimmed(); through != 2 || !ok {
		t.Fatalf("with 3 open: %d settled to trim (%v), want 2", through, ok)
	}
	n.trim(2)
	if _, ok := n.untrimmed(); ok {
		t.Fatal("nothing is left to trim")
	}
}

func TestABatchThatOnlyRefusedLeavesNothingToTrim(t *testing.T) {
	var n numbers
	requireAcked(t, &n, 1, 0)
	n.settle(1)
	if _, ok := n.untrimmed(); ok {
		t.Fatal("the outbox never held anything")
	}
}

func TestAFencedBatchIsNotAckedUntilItsGenerationIsForgotten(t *testing.T) {
	var n numbers
	requireAcked(t, &n, 1, 0)
	n.fenced(1, 7)
	requireAcked(t, &n, 2, 0)
	n.inStream(2, 7)
	requireAcked(t, &n, 3, 0)
	n.inStream(3, 8)
	requireAcked(t, &n, 4, 3)
}
