package fulfil

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func beginAll(h *hosts, name string) []*call {
	var calls []*call
	for h.free(name) > 0 {
		calls = append(calls, h.begin(name))
	}
	return calls
}

func TestAReceiverHasNoMoreCallsThanItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(10, 4, time.Second)
		for i, want := range []int{4, 4, 2, 0} {
			if n := len(beginAll(h, fmt.Sprint("host-", i))); n != want {
				t.Errorf("receiver %d got %d calls, want %d", i, n, want)
			}
		}
	})
}

func TestReceiversThatHangLeaveTheirPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(10, 5, time.Second)
		hanging := append(beginAll(h, "hangs-1"), beginAll(h, "hangs-2")...)
		if n := h.free("soon"); n != 0 {
			t.Fatalf("%d places while all are taken", n)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if n := h.free("soon"); n != 5 {
			t.Errorf("%d places for a receiver that answers, want its share of 5", n)
		}
		if n := h.free("hangs-3"); n != 5 {
			t.Errorf("%d places for a receiver that nobody knows, want 5", n)
		}
		// The slow ones have filled their own budget.
		hanging[0].answered()
		hanging[0].end()
		if n := h.free("hangs-1"); n != 1 {
			t.Errorf("%d places for a slow receiver, want the one that it gave back", n)
		}
		for _, c := range hanging[1:] {
			c.answered()
			c.end()
		}
		if calls, slowHosts := h.count(); calls != 0 || slowHosts != 2 {
			t.Errorf("%d calls, %d slow receivers, want 0 and 2", calls, slowHosts)
		}
		<-time.After(slowFor)
		if _, slowHosts := h.count(); slowHosts != 0 || len(h.byName) != 0 {
			t.Errorf("%d slow receivers, %d known ones a minute later", slowHosts, len(h.byName))
		}
	})
}

func TestAReceiverThatAnswersSoonIsNotSlowAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(4, 2, time.Second)
		c := h.begin("host")
		<-time.After(time.Second)
		synctest.Wait()
		if _, slowHosts := h.count(); slowHosts != 1 {
			t.Fatal("a receiver that takes long does not count as slow")
		}
		c.answered()
		c.end()
		c = h.begin("host")
		c.answered()
		c.end()
		if _, slowHosts := h.count(); slowHosts != 0 {
			t.Error("a receiver that answered soon still counts as slow")
		}
	})
}
