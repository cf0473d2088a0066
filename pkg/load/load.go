// Package load is a crowd: an open-model load generator for the grab service.
//
// Every grab has a time at which it is meant to begin, by the rate or all at
// once, whether earlier ones were answered or not; latencies count from that
// time, so a service that stalls can't hide it by holding the generator up
// (coordinated omission).
//
//	schedule ──due──▶ workers (Connections of them) ──HTTP──▶ service
//	    ▲                   │
//	    └── not decided ────┘   same key again, after Retry-After
//
// A run remembers who was told "won" with which order, so that the promise can
// be held against the books afterwards.
package load

import (
	"context"
	"sync"
	"time"
)

// Run sends the crowd and returns what it was told. It ends when every grab is
// decided or out of retries, when the timeout is over, or when ctx ends; the
// report counts what is undecided then, which is no error.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, err
	}
	sender, err := newSender(cfg)
	if err != nil {
		return Report{}, err
	}
	defer sender.close()
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()

	start := time.Now()
	crowd := newSchedule(cfg, start)
	record := newRecorder(cfg, start)
	stopTelling := record.tell()
	due := make(chan task)
	var work sync.WaitGroup
	for range min(cfg.Connections, crowd.copies()) {
		work.Go(func() {
			for t := range due {
				a := sender.send(ctx, t)
				if ctx.Err() != nil && a.class == ClassFailed {
					continue // cut off by the end of the run: it says nothing about the service
				}
				retry := a.undecided() && t.attempt <= cfg.Retries
				record.answer(t, a, retry)
				if retry {
					crowd.again(t, a)
				} else {
					crowd.decided()
				}
			}
		})
	}
	crowd.run(ctx, due)
	close(due)
	work.Wait()
	stopTelling()
	return record.report(time.Since(start)), nil
}
