// Package service is the job service: it keeps jobs, starts their runs, and decides what the end of a run means for its job and for people.
//
// Package cron below it has the vocabulary, the decisions and the loop; package store has the rows. This package connects both with the process that it
// runs in, and asks that process for little: see [Node], [Turns], [Callers], [Publisher] and [Outbox].
//
// # Ideas
//
// A run of a job is a message: the store makes its row in the transaction of its ledger row, [Turns].Launch brings it to its lane, and a turn carries it
// out as every other message. [Service] has one part for each idea:
//
//   - [Editor] reads, adds, changes, pauses and removes jobs. It decides within the transaction of the store, and compares revisions with what it read before.
//   - [Runs] starts runs by hand, fills in slots of the past, cancels, and lists the ledger.
//   - [Attempt] is what a turn does for the run that it carries out: the start and the end in the ledger, the work that needs no agent, and the state of the
//     run after it. Turns know it by an interface of their own.
//   - [Delivery] decides where answers and alerts go, and pauses the delivery to an address that takes nothing any more.
//   - [Events] publishes what happens to jobs, in this process and to other replicas.
//   - maintenance is the built-in jobs: they remove what is old.
//   - launcher receives what the loop of package cron has claimed.
//
// # Who asks whom
//
// The parts read the store through one view of it that publishes the runs which an operation has ended (publishingStore), so no caller has to. Functions that
// run within an operation of the store are pure: what they need is read before the operation.
//
// # Crash points
//
// Nothing is kept in memory that matters. A run that was launched is a message, which another process takes over. The end of an attempt, the next state of its
// job and what is sent are one transaction, see [Attempt.End]; events and alerts come after it. An alert is a row of the outbox: a process that
// dies between the end of a run and its alert loses the alert, except that of an address that is gone, which is written with the pause of the delivery.
//
// # Goroutines and the end
//
// [Service.Run] owns the loop; it returns when its context is over. Alerts about skipped slots run beside the loop, on goroutines that [Deps].Go starts and
// its owner waits for. Everything else runs on the goroutine of its caller.
package service
