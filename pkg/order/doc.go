// Package order turns grants into orders and answers their owners.
//
//	worker.go, run.go  the order worker: many messages, one transaction, then the acknowledgements
//	part.go, apart.go  a batch that fails is taken apart; what can't be written becomes a dead letter
//	http.go            GET and cancel of an order
//	resolve.go         where an order stands: ledger, Redis, or nowhere
//	watch.go           the status of an order as server-sent events
//	waiters.go         requests that wait for an order to be written or to change
//	expiry.go          ends orders that were not paid in time
//	events.go          tells the shop what happens to orders
//	deadletters.go     what an operator does about dead letters
//	catchup.go         messages that are settled and yet not written are read again
//	lag.go             how far the workers are behind
//	service.go         all of it as one role of a process
//
// What becomes of a message:
//
//	fetched ─▶ one transaction with others ──committed──▶ ack
//	              │
//	              ├─ database away ─▶ retry, later and later; never anything else
//	              ├─ a lock, or no time ─▶ retry, later and later; other sales are written
//	              ├─ failed, reason unknown ─▶ retry; from the third delivery on, taken apart
//	              └─ failed for good ─▶ taken apart
//	taken apart: good grants are written in this very delivery
//	              ├─ nothing left ─▶ ack
//	              └─ a poisonous grant ─▶ retry, later and later
//	                     └─ came too often ─▶ dead letter in stream and table ─▶ ack
//	not readable ─▶ dead letter ─▶ ack
package order
