// Package dispatch connects the parts of the gateway: a message becomes a command or a turn, and a turn receives its history, its agent and
// its reply.
//
// # The path of a message
//
// [Dispatcher.Receive] executes a command at once, or makes the message durable (Store.Accept) and submits it to the scheduler when this
// process owns the session. The scheduler calls back with a turn. The turn is started in the store (fence first), the agent runs, its
// events are published, and Store.Finish writes outcome, transcript and outgoing messages in one transaction. No accepted message is kept
// only in memory: the store's row is the message, and the scheduler's item is a plan to run it.
//
// # Responsibilities
//
// The store decides what is accepted, dropped and stopped; its answer is authoritative. The scheduler decides when a turn runs. The two can
// race, for example when a message is dropped in the store while it is being started. Store.Start then decides: a message that has an
// outcome does not run.
//
// # The parts
//
// [Dispatcher] is the API. Each concept has its own type, listed in the order of the path of a message:
//
//   - receiver checks a message and makes it durable; admission and access limit who may do that;
//   - commands records, executes, answers and completes chat commands;
//   - queue submits messages to the scheduler in their order and writes the outcome of those that never become a turn;
//   - turns starts a turn in the store, runs its agent and writes its end; [source] has the inputs and outputs of a turn, and [attempt] is
//     the attempt of a job's run that it executes;
//   - questions asks people for permission for what agents do: it makes the tool calls that they allow, and wakes the turns that wait for
//     an answer;
//   - trees are the sub-turns of turns: how they start, what they inherit, how a parent waits, what is announced, what ends with a parent;
//   - stops stops, resets and deletes; signs shows people that their message waits or is being answered;
//   - jobTurns and jobCallers implement what the job service (package cron/service) needs; jobCalls forwards calls of the gateway to it.
//
// # Ownership
//
// Package ownership decides which sessions this process may run: it keeps the lease, sweeps, and forwards stop requests. [takeover] does
// the rest: unfinished messages of a session are submitted to the scheduler again, and a lost lease cancels every turn with cause lease
// lost.
//
// # Goroutines and shutdown
//
// [Dispatcher.Run] owns the loops and returns when they have ended. Turns run on goroutines of the scheduler. Short work beside a turn or a
// call (typing, the write of a stop) is counted and awaited. The order of the shutdown is: [Dispatcher.Drain] (refuse new work, end
// previews, let turns finish, cancel the rest, stop sending), the channels, [Dispatcher.Leave] (the table of nodes), the context of Run.
package dispatch
