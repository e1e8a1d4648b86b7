// Package postgres is the store for deployments: any number of gateway processes share one Postgres (14 or newer).
//
// # Central ideas
//
// The row of a session is its lock. Whatever changes a session's messages, runs or counters first locks that row, so the
// operations on one session are serial while those on different sessions never meet. Under READ COMMITTED every statement sees
// what was committed before it began; therefore the lock is always taken by an earlier statement than the one which reads. A single
// statement that locked and read at once would decide on a picture from before the lock: that is how wake-ups get lost.
//
// The fence is the lock: the first statement of a write by a turn locks the session's row only if (owner, epoch) is the
// caller's and the caller's lease is valid. If it finds no such row it divides by zero on purpose: the database then
// refuses everything else of the same batch, and the caller gets chat.ErrFenced. So a fenced write costs one round trip and leaves
// nothing behind.
//
// An operation is one round trip. Its statements travel as a pipeline, which Postgres runs as one transaction. Accept is one
// statement: it gives the sequence number, stores the message and takes a free session; what was offered before it leaves alone. A duplicate of
// the same moment is noticed by the unique index, which undoes the statement and so uses no number up.
//
// Accepts, starts and finishes of different sessions that wait at the same time share one transaction (group): one start of each statement
// and one flush for all. A group passes over the sessions that somebody else has locked, proves the fence of each claim, and does
// only what is straight; whatever it leaves out has written nothing and is tried by itself. Lone operations do not wait for company. The ends of
// cron runs share one of two round trips: jobs and ledger are read, decided upon in Go, and written as arrays.
//
// Only the database's clock counts. Every statement takes the time as its first parameter; it is NULL (the
// database's clock) unless a test injects one.
//
// Cron takes its locks in one order: jobs, rows of the ledger that retry, sessions, what lies in them. A claim looks first, in one
// round trip that reads two index entries; what is due is then locked, decided in Go and written as arrays, a few statements for hundreds
// of fires. A run that executes is a message, and everything that ends a message ends its run in the same transaction. What a claim
// has committed without hearing of it (the connection broke) is handed out by the next one.
//
// # What it promises
//
// Everything that package store does. Beyond it: heartbeat and stop have a connection each and never wait for the pool; conflicts and
// connections that break are tried again (five times, with jitter); when the database is away, read-only, full or out of
// connections the error is chat.ErrStoreUnavailable with a sentence that says what to do and holds no address or
// password.
//
// # What it does not do
//
// It does not migrate by itself: [Open] refuses another schema version, [Migrate] changes it. It sends no NOTIFY inside
// a transaction, because those commit one after the other in the whole server. It keeps nothing in memory that a crash may not take: of
// launches whose commit got no answer it remembers the names, and the sweep finds them as well.
//
// # How it ends
//
// [Store.Close] waits for the groups that are under way and ends the two goroutines of the wake-up hints (which exist only if they were
// asked for), the pools and the control connections.
//
//	st, err := postgres.Open(ctx, postgres.Config{URL: url})
//	if err != nil { … }
//	defer st.Close()
package postgres
