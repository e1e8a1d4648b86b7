// Package cron is the jobs: what a job is, what happens to each of its slots, and the loop that fires them.
//
// When a schedule fires is the arithmetic of package schedule below this one. The store keeps the truth; the loop can end at any point.
//
// # Ideas
//
// A [Job] is a definition, a [Run] is one row of the ledger: the end of one slot is decided once, under (job, slot, trigger). A [Timetable] adds to
// a schedule what belongs to one job: jitter, a first and a last moment, a number of fires. Preview and firing both ask [Timetable.Next];
// there is no second way to compute a fire. [Timetable.Decide] decides which slots run and which were missed, [OverlapPolicy.Decide] what happens beside an active
// run, and [Planner] puts both together for one claimed job. All of this is without a clock, a database or a goroutine: every function takes the time
// as an argument, so the same inputs give the same answer on every replica, in a preview and in a test.
//
// [Runner] is the loop: it sleeps until the next due time, claims what is due through [JobStore], in one transaction of the store for each batch, and
// launches it. Nothing is claimed before it is due. [Border] checks what comes from outside and makes a Job of it.
//
// # Promises
//
//   - [Timetable.Decide] is bounded in time after any outage: what does not run is counted, not enumerated.
//   - A refused job comes back as [*schedule.InvalidError], with the field, a reason from a closed set and a sentence that names the bound.
//   - The next slot follows from the planned slot, never from the clock: lateness does not add up.
//
// # Crash points
//
// A claim is one transaction: before it nothing has happened, after it the ledger has the slot and another process takes the run over when the lease of
// this one has ended.
//
// # Goroutines and the end
//
// [Runner.Run] is the loop and starts no goroutine; it returns after its context is done.
package cron
