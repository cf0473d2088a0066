package load

import (
	"strings"
	"testing"
	"time"
)

func TestTasksComeWhenTheyAreDue(t *testing.T) {
	start := time.Now()
	s := newSchedule(Config{Grabs: 3, Users: 3, Rate: 10}, start)
	at := func(d time.Duration) (grab int, wait time.Duration) {
		next, wait, over := s.pop(start.Add(d))
		if over {
			t.Fatal("over before all is decided")
		}
		if next == nil {
			return -1, wait
		}
		return next.grab, 0
	}
	if grab, _ := at(0); grab != 0 {
		t.Errorf("first is %d", grab)
	}
	if grab, wait := at(40 * time.Millisecond); grab != -1 || wait != 60*time.Millisecond {
		t.Errorf("got %d, wait %s before the second is due", grab, wait)
	}
	// Late, because nobody asked: both are due, in order.
	if grab, _ := at(250 * time.Millisecond); grab != 1 {
		t.Errorf("second is %d", grab)
	}
	if grab, _ := at(250 * time.Millisecond); grab != 2 {
		t.Errorf("third is %d", grab)
	}
	for range 3 {
		s.decided()
	}
	if _, _, over := s.pop(start); !over {
		t.Error("not over when all are decided")
	}
}

func TestARetryComesBeforeALaterArrival(t *testing.T) {
	start := time.Now()
	s := newSchedule(Config{Grabs: 2, Users: 2, Rate: 0.001}, start)
	first, _, _ := s.pop(start)
	s.again(*first, answer{retryAfter: 2 * time.Second})
	if next, wait, _ := s.pop(time.Now()); next != nil || wait < time.Second || wait > 2500*time.Millisecond {
		t.Fatalf("task %v, wait %s; asked to come after 2s", next, wait)
	}
	again, _, _ := s.pop(time.Now().Add(3 * time.Second))
	if again == nil || again.grab != 0 || again.attempt != 2 || again.key != first.key || !again.first.Equal(first.due) {
		t.Errorf("retry of %+v is %+v", first, again)
	}
}

func TestHistogramKeepsThreeDigits(t *testing.T) {
	h := newHistogram()
	for ms := 1; ms <= 1000; ms++ {
		observe(h, time.Duration(ms)*time.Millisecond)
	}
	observe(h, -time.Second)
	observe(h, time.Hour)
	l := latencyOf(h)
	near := func(name string, got, want time.Duration) {
		if diff := (got - want).Abs(); diff > want/500 {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	near("p50", time.Duration(l.P50), 500*time.Millisecond)
	near("p90", time.Duration(l.P90), 901*time.Millisecond)
	near("p99", time.Duration(l.P99), 991*time.Millisecond)
	near("max", time.Duration(l.Max), 10*time.Minute)
	if l.Count != 1002 {
		t.Errorf("count %d", l.Count)
	}
}

func TestTextNamesEveryClassThatWasAnswered(t *testing.T) {
	r := Report{
		Grabs: 3, Outcomes: map[string]int64{"won": 1, ClassFailed: 2},
		Latency: map[string]Latency{"won": {Count: 1}, "not_loaded": {Count: 4}, ClassFailed: {Count: 2}},
		Problem: "connection refused",
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"won", "not_loaded", "failed", "connection refused", "p99.9"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "sold_out") {
		t.Errorf("classes without an answer are shown:\n%s", &text)
	}
}
