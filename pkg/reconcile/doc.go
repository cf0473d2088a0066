// Package reconcile gets the counts in Redis back from what is durable, and
// keeps watching that they agree.
//
//	fold.go        what ledger and stream say together: a pure function
//	reconciler.go  the service; run.go and rebuild.go are one run for one sale: close,
//	               publish, fence, read, fold, write, switch
//	floor.go       how much of the stream the ledger has written
//	audit.go       compares Redis with the ledger on a schedule, asks for a run when
//	               they disagree; compare.go says how, rest.go when that is fair
//	relay.go       publishes what dead grab processes left in their outboxes; relayall.go
//	               does so for every sale
//	giveback.go    gives stock back to Redis once the ledger has decided it
//	verify.go      checks every guarantee over Redis, stream and ledger; judge.go judges
//
// A run may be killed at any step and started again, and two may race: the
// stream's later fence wins, restore.lua refuses an older generation.
package reconcile
