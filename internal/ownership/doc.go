// Package ownership keeps this process alive in the eyes of the store, and finds the work that no live process owns.
//
// # Incarnations
//
// A process that serves is an incarnation: a row in the table of nodes with a lease. [Node.Run] extends the lease with a heartbeat. Each start, each
// lost lease and each restart in place makes a new incarnation with a new id, so that a claim of an old one is refused by the store (the fence). The
// lease is given up locally before it ends in the store: by [Node.Alive], at the time of the last heartbeat plus the lease less a margin.
//
// # Work without an owner
//
// A sweep takes over sessions whose owner is gone, and looks for messages that another replica has accepted for a session of this one. It runs by the
// clock, after a hint of the store, and when [Node.SweepNow] asks for it. It is the only repair after a crash, a pause or a lost hint. What it finds
// goes to [Handler.Resume].
//
// # Writes that must not be lost
//
// [Node.Final] repeats a write while the store does not answer and the incarnation lives. [Node.WhileAlive] does so while its context lasts. A write
// that has begun is not abandoned half-way, because its caller has to know whether it was committed. Operations of the store may be repeated as a
// whole, so an unknown result is resolved by asking again.
//
// # A database that went back in time
//
// A failover to a standby that was behind, or a restored copy, loses commits that this process has seen. Each heartbeat compares: the history that the
// database continues with the one before, and the runs that the database assigns to this process with those that it executes. Where they differ
// the process gives its incarnation up and reads everything again; the loss is logged, counted and noted in the log of changes. What the database has
// forgotten cannot be restored from memory.
//
// # Crash points
//
// Between a heartbeat and the next one: the lease ends, another replica sweeps. Between Register and the first sweep: nothing is owned yet. During
// [Node.Restart]: the old incarnation is unregistered or its lease ends, which frees the same sessions. Before [Node.Leave]: others wait for the lease.
//
// # Goroutines and the end
//
// [Node.Run] owns three goroutines: the heartbeat, the sweep, the stop requests. They are apart because a slow sweep must not cost the lease, and neither
// may delay a stop. Only the heartbeat replaces the incarnation. Run returns when all three have ended; it ends the waits of Final and WhileAlive as well.
// The order of an end is [Node.Drain], then the work, then [Node.Leave], then the context of Run.
//
// # What it does not do
//
// It knows no message, turn, job or channel. It does not run or stop anything by itself: [Handler] does.
package ownership
