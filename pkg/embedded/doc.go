// Package embedded runs stand-ins for the three backends inside this process,
// so that a trial needs nothing but Go. For development only:
//
//   - NATS is the real nats-server, with JetStream on disk and every message
//     flushed before it is acknowledged, but a single one;
//   - Redis is miniredis: memory only, a tenth of the speed, no replication, no
//     memory bound. Its memory is empty after every start, which the
//     reconciler heals as it heals any loss;
//   - the ledger is a SQLite file, with one writer at a time.
//
// Redis and NATS listen on free loopback ports and ask for a password that is
// made up at every start.
package embedded
