// Package store is the port to what is durable: some thirty semantic operations, each atomic, each safe to retry as a whole. The adapters below it (postgres,
// sqlite) hold the only SQL of the code base; storetest is the one suite that both pass, and sqlite/sqlitetest opens stores for the tests of other packages.
//
// # What it promises
//
//   - Accepted means committed: when [Store.Accept] has returned, a crash cannot lose the message, and the same message
//     offered again (same Dedupe) is the same message.
//   - Every accepted message gets exactly one outcome.
//   - One owner at a time runs a session's turns. Ownership is (owner, epoch) on the session row; owner is the incarnation of a
//     process ([Node]), alive as long as its lease.
//   - Effects are fenced: whatever a turn writes is written in one transaction that first proves that its [Claim] still holds. A
//     claim that does not hold gets [chat.ErrFenced], and nothing is written.
//   - Only the store's clock decides about leases, due times and cutoffs. It is the database's clock, or the one a test injected.
//
// # How a message moves
//
//	Accept            inbox row `held` (debounced) or `waiting`; the session gets this owner if no live node owned it
//	Start             rows `running`, one run row `running`; the sequence numbers are now taken
//	Finish            rows `done` with outcomes, run row ended, transcript, outbox, done_seq; ownership released if nothing is left
//	Finish + Requeue  a drain interrupted the turn: rows `held` for another attempt, run row `interrupted`
//	EndWaiting        rows that never became a turn: dropped, superseded, stale, stopped
//	Sweep             rows of sessions without a live owner: taken over, epoch + 1
//
// # Errors
//
// chat.ErrFenced (the claim does not hold), chat.ErrQueueFull, chat.ErrKeyReused, chat.ErrNotFound, chat.ErrDraining (this node is declared dead:
// [Store.Heartbeat] only) and chat.ErrStoreUnavailable (the engine cannot be reached, is read-only or out of space; retryable; nothing was done) are what a
// caller can act on. Everything else is a defect.
//
// # Repetition
//
// When the context of an operation ends before the commit, nothing is written. When it ends during the commit, or the connection breaks, the commit is unknown
// ([CommitUnknown]), and the caller repeats the operation with the same parameters. If the first call was committed the repetition writes nothing and returns
// its result: Accept returns the message as a duplicate; Start and Join return the same result as long as the claim holds; Finish and EndStopping return it
// also when the claim has ended since. So no caller needs to read rows to learn the result.
//
// The caller marks a repeated EndWaiting with [EndParams].Again: the result then includes messages that already have this outcome.
//
// The repetition of a Finish is recognised by claim, run, state, cause and transcript, whose entries have the run's id. Another Finish of an ended run gets
// ErrFenced. A Start that finds its run running returns no [Started.Job]; the functions of a [cron.AttemptEnd] are not called a second time.
package store
