// Package postgres is the store for deployments: any number of gateway processes share one PostgreSQL (14 or newer).
//
// # Central ideas
//
// The operations are those of package sqlstore. This package adds connections, transactions, and features that only PostgreSQL has.
//
// The row of a session is its lock. Every change of a session's messages, runs or counters locks that row first, so the operations on one session are serial
// and those on different sessions never wait for each other. Under READ COMMITTED every statement sees what was committed before it began; therefore the lock
// is always taken by an earlier statement than the one that reads. A single statement that locks and reads would decide on a snapshot from before the lock, and
// wake-ups would be lost.
//
// An operation of a turn is two round trips: BEGIN is sent with the statements that lock and read, COMMIT with those that write. Between them it decides in Go.
// Concurrent accepts, starts and finishes of different sessions share one transaction (a group of sqlstore): one start of each statement and one flush for all.
// A group skips the sessions that another transaction has locked, proves the fence of each claim, and handles the usual case only; an operation that it leaves
// out has written nothing and runs in a transaction of its own. A single operation does not wait for others.
//
// The only clock is the database's. Every statement takes the time as its first parameter, which is NULL (the database's clock) unless a test injects a clock.
//
// Cron takes its locks in one order: jobs, ledger rows that retry, sessions, the rows of the sessions. A claim checks first, in one round trip that reads two
// index entries, whether anything is due. It locks the due jobs, decides in Go and writes arrays: a few statements for hundreds of fires. The execution of a
// run is a message. Every statement that ends a message ends its run in the same transaction. When the connection breaks during the commit of a claim, the next
// claim returns its launches.
//
// # What it promises
//
// The guarantees of package store, and in addition: Heartbeat and stop have a connection each and never wait for the pool. The store retries operations after
// conflicts and broken connections (five retries, with jitter). When the database is unreachable, read-only, full or out of connections, the error is
// chat.ErrStoreUnavailable with a remedy and without an address or password.
//
// # What it does not do
//
// It does not migrate by itself: [Open] refuses an older schema, [MigrateUp] upgrades it. It sends no NOTIFY inside a transaction, because the server
// serializes the commits of such transactions. It has no state in memory that must survive a crash: it keeps the ids of launches whose commit is unknown, but
// the sweep also finds those.
//
// # How it ends
//
// [Store.Close] waits for the running groups and ends the two goroutines of the wake-up hints (which exist only after their first use), the pools and the
// control connections.
//
//	st, err := postgres.Open(ctx, postgres.Config{URL: url})
//	if err != nil { … }
//	defer st.Close()
package postgres
