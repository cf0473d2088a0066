// Package fulfil calls the shop's system for orders, by webhooks that are signed as
// the Standard Webhooks specification says (https://www.standardwebhooks.com).
//
//	sender.go   finds due deliveries and makes their calls, within bounds
//	hosts.go    how many calls a receiver may have, and which receivers are slow
//	attempt.go  one delivery: the call, and what comes of it
//	call.go     one HTTP request
//	sign.go     its signature
//
// What becomes of a delivery:
//
//	due ─▶ claimed, for the length of a lease ─▶ called
//	          ├─ 2xx ─▶ the order is fulfilled
//	          ├─ anything else ─▶ again, later and later
//	          ├─ 410, or its time is up ─▶ the order is rolled back, or the delivery is parked
//	          └─ nobody knows (a crash) ─▶ due again when the lease is over
//
// A receiver may so be called more than once for an order; the id of the webhook is
// the same each time.
package fulfil
