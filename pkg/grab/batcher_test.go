package grab

import "testing"

func TestOnlySettledBatchesCountAsAcked(t *testing.T) {
	var n numbers
	one, acked := n.next()
	if one != 1 || acked != 0 {
		t.Fatalf("first: number %d, acked %d; want 1 and 0", one, acked)
	}
	two, acked := n.next()
	if two != 2 || acked != 0 {
		t.Fatalf("second: number %d, acked %d; want 2 and 0", two, acked)
	}
	n.settle(two)
	if _, acked := n.next(); acked != 0 {
		t.Fatalf("with 1 open and 2 settled: acked %d, want 0", acked)
	}
	n.settle(one)
	if through, ok := n.untrimmed(); through != 2 || !ok {
		t.Fatalf("with 3 open: %d settled to trim (%v), want 2", through, ok)
	}
	n.trim(2)
	if _, ok := n.untrimmed(); ok {
		t.Fatal("nothing is left to trim")
	}
}
