// Package ownership keeps the lease of this process in the store, and finds work that no live process owns.
//
// # Incarnations
//
// A serving process is an incarnation: a row in the table of nodes with a lease. [Node.Run] extends the lease with a heartbeat. Each start, each lost lease and
// each restart in place creates a new incarnation with a new id, so that the store refuses a claim of an old one (the fence). Locally the lease ends before it
// ends in the store: [Node.Alive] ends it at the time of the last heartbeat plus the lease minus a margin.
//
// # Work without an owner
//
// A sweep takes over sessions whose owner is dead, and reads messages that another replica has accepted for a session of this one. It runs periodically, after
// a hint from the store, and after [Node.SweepNow]. It is the only repair after a crash, a pause or a lost hint. Its result goes to [Handler.Resume].
//
// # Writes that must not be lost
//
// [Node.Final] retries a write while the store is unavailable and the incarnation is alive. [Node.WhileAlive] does so while its context lasts. A try that has
// begun is not cancelled, because its caller must know whether it was committed. Operations of the store may be repeated as a whole, so a repetition resolves
// an unknown result.
//
// # A database that lost commits
//
// A failover to a lagging standby, or a restored copy, loses commits that this process has seen. Each heartbeat compares the commit history of the database
// with the previous one, and the runs that the database assigns to this process with those that it executes. If they differ, the process abandons its
// incarnation and reads everything again; the loss is logged, counted and written to the audit log. The lost commits cannot be restored from memory.
//
// # Crash points
//
// Between a heartbeat and the next one: the lease ends, another replica sweeps. Between Register and the first sweep: nothing is owned yet. During
// [Node.Restart]: the old incarnation is unregistered or its lease ends, which frees the same sessions. Before [Node.Leave]: other replicas wait for the end of
// the lease.
//
// # Goroutines and the end
//
// [Node.Run] owns three goroutines: the heartbeat, the sweep, the stop requests. They are separate because a slow sweep must not cost the lease, and neither
// may delay a stop. Only the heartbeat replaces the incarnation. Run returns when all three have ended; it ends the waits of Final and WhileAlive as well. The
// order of a shutdown is [Node.Drain], then the work, then [Node.Leave], then the context of Run.
//
// # What it does not do
//
// It is independent of messages, turns, jobs and channels. It does not run or stop anything by itself: [Handler] does.
package ownership
