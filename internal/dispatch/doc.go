// Package dispatch brings the parts together: a message becomes a command or a turn, and a turn gets its history, its agent and its reply.
//
// # The path of a message
//
// [Dispatcher.Receive] executes a command here and now, or makes the message durable (Store.Accept) and submits it to the
// scheduler when this process owns the session. The scheduler calls back with a turn; the turn is started in the store (fence
// first), the agent runs, its events go to subscribers, and Store.Finish writes outcome, transcript and outgoing messages in
// one transaction. What this process has accepted is never kept only in memory: the store's row is the message, the scheduler's
// item is a plan to run it.
//
// # Who may decide what
//
// The store decides what is accepted, dropped and stopped; its answer is the truth. The scheduler decides when a turn runs. Where the
// two can race (a message is dropped in the store while it is being started) Store.Start is the arbiter: what has an outcome does not run.
//
// # The parts
//
// [Dispatcher] is the public face; each idea has a type of its own, in the order of the path of a message:
//
//   - receiver checks a message and makes it durable; admission and access bound who may do so;
//   - commands records, executes, answers and completes chat commands;
//   - queue brings messages to the scheduler in their order and writes the outcome of those that never become a turn;
//   - turns starts a turn in the store, runs its agent and writes its end; [source] is what a turn starts from and ends into, [attempt] the
//     attempt of a job's run that it carries out;
//   - questions asks persons what agents may do: it makes the calls of tools that they allow, and wakes the turns that wait for an answer;
//   - trees are the sub-turns of turns: how they start, what they inherit, how a parent waits, what is announced, what ends with a parent;
//   - stops stops, resets and deletes; signs shows people that their message waits or is being answered;
//   - jobTurns and jobCallers are what the job service (package cron/service) needs of the others; jobCalls passes calls of the gateway on to it.
//
// # Ownership
//
// Package ownership decides which sessions this process may run: it keeps the lease, sweeps, and passes on stop requests. [takeover] does the
// rest: unfinished messages of a session go to the scheduler again, and a lost lease cancels every turn with cause lease lost.
//
// # Goroutines and the end
//
// [Dispatcher.Run] owns the loops and returns when they have ended. Turns run on goroutines of the scheduler. Short work beside a
// turn or a call (typing, a stop that is being written) is counted and awaited. The order of the end is: [Dispatcher.Drain] (refuse what is
// new, end previews, let turns finish, cancel the rest, end the sending), the channels, [Dispatcher.Leave] (the table of nodes), the context of Run.
package dispatch
