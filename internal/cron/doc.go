// Package cron implements jobs: their definition, the decision about each of their slots, and the loop that fires them.
//
// The subpackage schedule computes when a schedule fires. All state is in the store; the loop can end at any point.
//
// # Ideas
//
// A [Job] is a definition, a [Run] is one row of the ledger: the outcome of one slot is decided once, under (job, slot, trigger). A [Timetable] adds to a
// schedule what belongs to one job: jitter, a first and a last moment, a number of fires. Preview and firing both call [Timetable.Next], which is the only way
// to compute a fire. [Timetable.Decide] decides which slots run and which were missed, [OverlapPolicy.Decide] what happens during an active run, and [Planner]
// combines both for one claimed job. All of this is pure: every function takes the time as an argument, so the same inputs give the same result on every
// replica, in a preview and in a test.
//
// [Runner] is the loop: it sleeps until the next due time, claims due jobs through [JobStore], in one transaction per batch, and launches their runs. Nothing
// is claimed before it is due. [Border] validates input from clients and turns it into a Job.
//
// # Promises
//
//   - [Timetable.Decide] is bounded in time after any outage: slots that do not run are counted, not enumerated.
//   - A refused job is reported as [*schedule.InvalidError], with the field, a reason from a closed set and a sentence that names the bound.
//   - The next slot follows from the planned slot, never from the clock: lateness does not accumulate.
//
// # Crash points
//
// A claim is one transaction: before it nothing has happened, after it the ledger has the slot and another process takes over the run when the lease of this
// one ends.
//
// # Goroutines and the end
//
// [Runner.Run] is the loop and starts no goroutine; it returns after its context is done.
package cron
