// Package scheduler decides when a turn runs. It orders the messages of each session, merges related ones, limits how many turns run concurrently, and stops
// them. It is independent of agents, channels, SQL and HTTP and imports only the standard library; a message is a type parameter that it never inspects.
//
// # Terms
//
// A message is one input to a session. A turn is one execution over one or several merged messages; the last of them leads it and gives it its id. A lane is a
// named limit on concurrent turns. A ticket is the promise of one message's outcome.
//
// # Central ideas
//
// One mutex guards everything and is held only for bookkeeping. The effects of a decision, such as starting a goroutine, cancelling a context, completing a
// ticket or writing a log line, are collected in a value on the stack and performed after the mutex was released.
//
// No goroutine waits for a slot. A session with a turn that may start is once in its lane's ready list. Each call that frees a slot or adds work starts the
// next session of it. Ten thousand waiting messages are ten thousand list entries.
//
// A lane is shared by principals, then by sessions, not by messages. The ready sessions of one principal in one lane are its subqueue, and the subqueues form a
// ring. A start takes the first session of the first subqueue. Before the next start, the principal of the last one moves to the end of the ring, after
// principals that were added meanwhile. So a single message of another principal takes the next slot, and no principal starts twice while one that was added
// earlier waits. All of this takes constant time; a principal without waiting work has no record.
//
// A turn keeps its slot and its place in the session until its goroutine has really returned. Cancelling is a request. So a serial session never has two
// concurrent turns, whatever its runner does with its context.
//
// Waiting messages are grouped in units. A unit is the messages that will share a turn: one message, or the batch of a debounce window. The window is open
// while more may join. Only the last unit of a session can be open, which keeps the order of the session. Stop ends a whole unit.
//
// # Who owns which state
//
//	Scheduler   the mutex, the configuration and the parent context of the turns; its methods are the public ones, timers and goroutines
//	core        the state that the mutex guards, made of the parts below, and the decisions that need several parts
//	lanes       the lanes by name and the unknown names; lane: slots, ready list, ring of subqueues, turns that return from Yield
//	principals  the records of principals; principal: waiting messages, places of bounded turns, sessions that wait for a place
//	queues      the sessions by key, cutoffs, generation, debounce windows; session: waiting units in order, running turns, settings
//	turns       the counters of running turns and the rules of cancelling and ending; Turn: cause, grace, outcome of one turn
//	throttle    whether a session may have concurrent turns; the result is stored in the session
//	tally       counters since the start
//	pending     goroutines and timers that have not ended
//	effects     the work of one call after the mutex was released
//	reporter    tickets, Observer and log; it needs no mutex
//
// # Locks
//
// A method of Scheduler or an exported method of Turn takes the mutex. A method of core or of a part is called with the mutex held and never takes it.
// effects.go and reporter.go run without it. Ticket has a mutex of its own, which guards one outcome. It is taken after the scheduler's mutex was released; no
// goroutine holds both. Callbacks (Run, TokenEstimate, OnStuck, Observer) run without any lock.
//
// Fields of a Turn that are fixed at its start are read without the mutex. The outcome of a turn is written once, under the mutex, and read afterwards by the
// goroutine that wrote it.
//
// # Cost
//
// Submit, a start, the end of a turn, Stop and Yield take constant time, independent of waiting messages. Submit of an overtaken message and StopRun search the
// waiting messages of one session. Drop finds its message by binary search. StopAll completes the tickets of the ended messages after the mutex was released.
// Drain, ResetAll and Cancel visit every session once. A turn of one message costs three allocations: the entry, which contains the turn, and the two of its
// context.
//
// # Promises
//
//   - Active and free slots add up to the lane's limit. While a lane shrinks, active slots may exceed it until turns end.
//   - Turns of a session, stopping ones included, never exceed its MaxConcurrent at the time of a start.
//   - Messages of a session start in the order of their sequence numbers.
//   - Every accepted message gets exactly one outcome, and the counters add up to the number accepted.
//   - While a session of a principal is ready, each other principal starts at most one turn before this principal does.
//   - A principal never has more bounded turns than PrincipalTurns, except those that return from Yield.
//   - Whenever a slot is free and a turn may start, it starts. A place that a principal holds while its lane is full counts as used.
//   - A panic is an outcome of its turn, with the stack in the log.
//   - An idle session costs nothing: no goroutine, no timer, no entry.
//   - Submit and the stops never wait, however full a lane is.
//   - A session that is suspended starts no turn; nothing else about it changes.
//
// # What it does not do
//
// It does not persist state, does not retry, does not answer, and does not track which process owns a session. It recognises duplicates only while a message
// waits or runs. A durable store decides all of these; to hand over one session to another owner, Reset it.
//
// It limits no turn in time: a runner does so with a context of its own.
//
// It does not limit the number of waiting messages. The store decides which message is dropped from a full queue, and Drop removes that message here. WaitingOf
// is for a caller that bounds the waiting messages of a principal. Turns of a principal can be bounded (PrincipalTurns): a session whose next turn exceeds the
// bound is in the principal's line instead of the lane's.
//
// # How it ends
//
// Drain refuses new messages, ends waiting ones as cleared, lets turns end until its context ends, cancels the rest, and returns when everything that was
// started has ended or the grace has passed. The end of the work context of New does the same without waiting.
//
// # Example
//
//	s, err := scheduler.New(workCtx, scheduler.Config[string]{
//		Run: func(ctx context.Context, t *scheduler.Turn[string]) error {
//			return answer(ctx, t.Items())
//		},
//	})
//	...
//	sub, err := s.Submit(scheduler.Item[string]{Session: "chat:1", ID: "m1", Payload: "hello", Typed: true})
//	...
//	outcome, err := sub.Ticket.Wait(ctx)
package scheduler
