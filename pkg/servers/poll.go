package servers

import "time"

// PollInterval is the pause between two looks of Poll.
const PollInterval = 10 * time.Millisecond

// Poll looks at cond until it is ok, at least once, and at least once after the time is over, so that a
// process that was not scheduled for a while is not taken for one that failed. It returns the last look.
func Poll(within time.Duration, cond func() (ok bool, detail string)) (bool, string) {
	deadline := time.Now().Add(within)
	ticker := time.NewTicker(PollInterval)
	defer ticker.Stop()
	for {
		last := !time.Now().Before(deadline)
		ok, detail := cond()
		if ok || last {
			return ok, detail
		}
		<-ticker.C
	}
}
