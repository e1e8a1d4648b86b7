// Package postgres is the store for deployments: any number of gateway processes share one PostgreSQL (14 or newer).
//
// # Central ideas
//
// The operations are those of package sqlstore. This package has connections, transactions, groups, and what only PostgreSQL can do.
//
// The row of a session is its lock. Every change of a session's messages, runs or counters locks that row first, so the operations on one
// session are serial and those on different sessions never wait for each other. Under READ COMMITTED every statement sees what was
// committed before it began; therefore the lock is always taken by an earlier statement than the one that reads. A single statement that
// locked and read at once would decide on a snapshot from before the lock, and wake-ups would be lost.
//
// An operation of a turn is two round trips: BEGIN travels with the statements that lock and read, COMMIT with those that write. Between them
// it decides in Go. Accepts, starts and finishes of different sessions that run at the same time share one transaction (a group of sqlstore): one start of each
// statement and one flush for all. A group skips the sessions that another transaction has locked, proves the fence of each claim, and handles the usual
// case only; an operation that it leaves out has written nothing and runs in a transaction of its own. A single operation does not wait for others.
//
// Only the database's clock counts. Every statement takes the time as its first parameter; it is NULL (the database's clock) unless a test
// injects one.
//
// Cron takes its locks in one order: jobs, ledger rows that retry, sessions, the rows of the sessions. A claim checks first, in one round
// trip that reads two index entries, whether anything is due. It locks the due jobs, decides in Go and writes arrays: a few statements for
// hundreds of fires. The execution of a run is a message. Every statement that ends a message ends its run in the same transaction.
// When the answer of a claim's commit is lost because the connection broke, the next claim returns its launches.
//
// # What it promises
//
// Everything that package store does. Beyond it: heartbeat and stop have a connection each and never wait for the pool; the store repeats
// operations after conflicts and broken connections (five tries, with jitter); when the database is away, read-only, full or out of
// connections the error is chat.ErrStoreUnavailable with a sentence that contains what to do and no address or password.
//
// # What it does not do
//
// It does not migrate by itself: [Open] refuses another schema version, [Migrate] changes it. It sends no NOTIFY inside a transaction,
// because the server commits those one after the other. It has no state in memory that must survive a crash: of launches whose commit got
// no answer it keeps the names, and the sweep finds them as well.
//
// # How it ends
//
// [Store.Close] waits for the running groups and ends the two goroutines of the wake-up hints (which exist only after their first use), the
// pools and the control connections.
//
//	st, err := postgres.Open(ctx, postgres.Config{URL: url})
//	if err != nil { … }
//	defer st.Close()
package postgres
