package reconcile

import "time"

// Observer hears what a reconciler does, for metrics. Its methods must not block.
type Observer interface {
	// Run is one reconciliation of one sale.
	Run(result Result, reason string, took time.Duration)
	Step(step Step, took time.Duration)
	// Drift is one difference found by an audit; kind is one of DriftKinds.
	Drift(kind string)
	RestoredGrants(n int64)
	// Relayed is outbox batches published and givebacks applied for somebody else.
	Relayed(n int64)
}

type nothing struct{}

func (nothing) Run(Result, string, time.Duration) {}
func (nothing) Step(Step, time.Duration)          {}
func (nothing) Drift(string)                      {}
func (nothing) RestoredGrants(int64)              {}
func (nothing) Relayed(int64)                     {}
