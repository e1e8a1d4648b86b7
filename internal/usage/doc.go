// Package usage counts what agents use, prices it, and decides whether a turn may go on.
//
// The [Meter] of a process has three ideas.
//
// Counters are batched. A request to a model that has ended is counted in memory ([Turn.Count]) and written with those of other turns: one transaction for
// all of them, by the goroutine of [Meter.Run], at once when a turn waits for it ([Turn.Settle]), else at most a second later. A batch has the number of its writer, so that one whose commit was not confirmed is
// written again without counting twice. Counters of a day are rows by principal, agent, model and job, beside a total for each budget of that day. Replicas
// write into the same rows.
//
// A budget is checked before each round. [Turn.Allow] writes what this process has counted and reads the totals in the same transaction; checks that come at
// the same time share it. So a round begins only while less than the budget is counted, the rounds of other replicas included, and a turn passes a budget by
// one round at most: the one that it was in. Without a budget for a turn no totals are read.
//
// The record comes before what it is about. The usage of a round is committed before the round is recorded or the turn ends ([Turn.Settle]). A process that
// is killed between the two has counted a round that is asked for again, and the provider charges both. A repeated end of a turn counts nothing: its usage is
// not a part of it. It is no part of the transaction of the round either: the totals of a day are one row, on which all ends of turns would wait.
//
// A day is that of the zone of the gateway. A new day has other rows, so that nothing is reset.
//
// The package has one goroutine, that of Run, which ends with its context after a last batch. A check that comes later fails. It makes no prices up: an
// agent without one costs nothing. It is a leaf: it knows the vocabulary only, and declares what it needs of the store ([Store]).
package usage
