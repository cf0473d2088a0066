// Package stream is Doorbuster's use of NATS JetStream: the log of grants with
// its fences, the dead letters, the sale definitions, the leases, and the
// signals between services.
//
//	GRANTS  stream   grants.SALE   batches of grants (pkg/sale's codec), never removed by age or size
//	                 fence.SALE    the beginnings of generations
//	        consumer orders        all of GRANTS, for the order workers
//	DEAD    stream   dead.SALE     what the order workers gave up on
//	SALES   bucket   SALE          sale definitions (JSON)
//	LEASES  bucket   NAME          leases that die with their holders
//	-       signal   restocked.SALE, reconcile.SALE (core NATS, kept nowhere)
//
// The promise everything else rests on: a batch carries the sequence of the
// fence its generation began with, the server stores it only while that is still
// the last message on fence.SALE, and an acknowledged batch is on disk (run the
// server with sync_interval: always).
package stream
