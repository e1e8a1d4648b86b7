// Package service is the job service: it manages jobs, starts their runs, and decides about the consequences of the end of a run.
//
// Package cron has the vocabulary, the decisions and the loop; package store has the rows. This package connects both with the process, through the interfaces
// [Node], [Turns], [Callers], [Publisher] and [Outbox].
//
// # Ideas
//
// A run of a job is a message: the store creates its row in the transaction of its ledger row, [Turns].Launch submits it to its lane, and a turn executes it
// like every other message. [Service] has one part for each idea:
//
//   - [Editor] reads, adds, changes, pauses and removes jobs. It decides within the transaction of the store, and compares revisions with what it read before.
//   - [Runs] starts runs by hand, backfills past slots, cancels, and lists the ledger.
//   - [Attempt] is the run from the view of its turn: the start and the end in the ledger, the work that needs no agent, and the state of the
//     run after it. Turns use it through an interface of their own.
//   - [Delivery] decides where answers and alerts go, and pauses the delivery to an address that no longer accepts messages.
//   - [Events] publishes events about jobs, in this process and to other replicas.
//   - maintenance implements the built-in jobs, which delete old data.
//   - launcher receives the claims of the loop of package cron.
//
// # Access to the store
//
// The parts use the store through publishingStore, which publishes the runs that an operation has ended, so that callers need not. Functions that run within an
// operation of the store are pure: their input is read before the operation.
//
// # Crash points
//
// The service has no durable state in memory. A launched run is a message, which another process can take over. The end of an attempt, the next state of its
// job and the outgoing rows are one transaction, see [Attempt.End]; events and alerts follow it. An alert is a row of the outbox: a process that dies between
// the end of a run and its alert loses the alert, except the one about a missing address, which is written with the pause of the delivery.
//
// # Goroutines and the end
//
// [Service.Run] owns the loop; it returns when its context ends. Alerts about skipped slots are sent on goroutines that [Deps].Go starts and its owner waits
// for. Everything else runs on the goroutine of its caller.
package service
