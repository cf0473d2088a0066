package grab

import (
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Observer hears what an engine does, for metrics. Its methods are called on
// the hot path and must not block.
type Observer interface {
	Outcome(o sale.Outcome, replayed bool)
	// Batch is one script call: its grabs and how long it took.
	Batch(grabs int, took time.Duration)
	// Published is one batch: how long until the stream had it.
	Published(took time.Duration)
	// Queue is a change of the number of waiting grabs.
	Queue(delta int)
	// Unacked is a change of the number of batches that wait for the stream.
	Unacked(delta int)
	NotLoaded(reason string)
	// Recovered is one recovery after a lost answer: batches found and published.
	Recovered(batches int)
	// Selling is a change of the number of sales that hold a batcher.
	Selling(delta int)
}

type nothing struct{}

func (nothing) Outcome(sale.Outcome, bool) {}
func (nothing) Batch(int, time.Duration)   {}
func (nothing) Published(time.Duration)    {}
func (nothing) Queue(int)                  {}
func (nothing) Unacked(int)                {}
func (nothing) NotLoaded(string)           {}
func (nothing) Recovered(int)              {}
func (nothing) Selling(int)                {}
