// Package usage counts what agents use, prices it, and decides whether a turn may continue.
//
// The [Meter] of a process has three ideas.
//
// Counters are batched. A completed request to a model is counted in memory ([Turn.Count]) and written together with those of other turns, in one
// transaction on the goroutine of [Meter.Run]: at once when a turn waits for it ([Turn.Settle]), otherwise at most a second later. A batch has a
// number of its writer, so that a batch whose commit was not confirmed is written again without counting twice. Counters of a day are rows by
// principal, agent, model and job, in addition to a total for each budget of that day. Replicas write into the same rows.
//
// A budget is checked before each round. [Turn.Allow] writes what this process has counted and reads the totals in the same transaction; checks that
// come at the same time share it. So a round begins only while the counted usage, including that of other replicas, is below the budget, and a turn
// exceeds a budget by at most its current round. Without a budget for a turn no totals are read.
//
// Usage is committed first. The usage of a round is committed before the round is recorded or the turn ends ([Turn.Settle]). If a process is killed
// between the two, the round is requested again and counted twice, and the provider charges both requests. Repeating the end of a turn counts
// nothing. Usage is not written in the transaction of the round: the totals of a day are one row, on which the ends of all turns would wait.
//
// Days are those of the gateway's zone. A new day has new rows, so nothing has to be reset.
//
// The package has one goroutine, that of Run, which ends with its context after a last batch. A later check fails. An agent without a price costs
// nothing. The package imports only the vocabulary, and declares what it needs of the store ([Store]).
package usage
