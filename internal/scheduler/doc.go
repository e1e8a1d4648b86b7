// Package scheduler decides when a turn runs. It orders the messages of each session, merges what belongs together, limits how
// many turns run at once, and stops them. It knows nothing of agents, channels, SQL or HTTP and imports the standard
// library only; a message is a type parameter that it never looks at.
//
// # Words
//
// A message is one input to a session. A turn is one execution over one or several merged messages; the
// last of them leads it and gives it its id. A lane is a named limit on turns that run at once. A ticket is the promise
// of one message's outcome.
//
// # Central ideas
//
// One mutex guards everything and is held for bookkeeping only. What a decision leaves to be done, such as starting a
// goroutine, cancelling a context, completing a ticket or writing a log line, is collected in a value on the stack and done
// after the mutex was released.
//
// No goroutine waits for a slot. A session with a turn that may start stands once in its lane's ready list. Each call that frees a
// slot or adds work starts the next session of it. Ten thousand waiting messages are ten thousand list entries.
//
// A lane is shared by principals, then by sessions, not by messages. The ready sessions of one principal in one lane are its subqueue, and the
// subqueues form a ring. A start takes the first session of the first subqueue. The principal of the last start goes to the end of the ring before
// the next one, behind principals that came meanwhile. So a single message of another principal takes the next slot, and no principal starts
// twice while another one waits that was there before. All of it takes constant time; a principal without waiting work has no record.
//
// A turn keeps its slot and its place in the session until its goroutine has really returned. Cancelling is a request. So a
// serial session never has two turns at once, whatever its runner does with its context.
//
// Waiting messages are kept in units. A unit is what will share a turn: one message, or the batch of a debounce window. The
// window is open while more may join. Only the last unit of a session can be open, which keeps the order of the session.
// Stop ends a unit as one.
//
// # Who owns which state
//
//	Scheduler   the mutex, the configuration and the parent context of the turns; its methods are the public ones, timers and goroutines
//	core        the state that the mutex guards, made of the parts below, and the decisions that need several parts
//	lanes       the lanes by name and the unknown names; lane: slots, ready list, ring of subqueues, turns that return from Yield
//	principals  the records of principals; principal: waiting messages, places of bounded turns, sessions that wait for a place
//	queues      the sessions by key, cutoffs, generation, debounce windows; session: waiting units in order, running turns, settings
//	turns       the counters of running turns and the rules of cancelling and ending; Turn: cause, grace, outcome of one turn
//	throttle    whether a session may have turns side by side; the answer is kept in the session
//	tally       counters since the start
//	pending     goroutines and timers that have not ended
//	effects     what one call has to do after the mutex was released
//	reporter    tickets, Observer and log; it needs no mutex
//
// # Locks
//
// A method of Scheduler or an exported method of Turn takes the mutex. A method of core or of a part is called with the mutex held and never takes it.
// effects.go and reporter.go run without it. Ticket has a mutex of its own, which guards one outcome. It is taken after
// the scheduler's mutex was released; no goroutine ever holds both. Callbacks (Run, TokenEstimate, OnStuck, Observer) run without any lock.
//
// Fields of a Turn that are fixed at its start are read without the mutex. The outcome of a turn is written once, under the mutex, and read
// afterwards by the goroutine that wrote it.
//
// # Cost
//
// Submit, a start, the end of a turn, Stop and Yield take constant time, whatever waits. Submit of a message that was overtaken and StopRun
// look through the waiting messages of one session. Drop finds its message by binary search. StopAll completes the tickets of what it ends
// after the mutex was released. Drain, ResetAll and Cancel visit every session once. A turn of one message costs three allocations: the entry, which contains
// the turn, and the two of its context.
//
// # Promises
//
//   - Active and free slots add up to the lane's limit. While a lane shrinks, active slots may exceed it until turns end.
//   - Turns of a session, stopping ones included, never exceed its MaxConcurrent at the time of a start.
//   - Messages of a session start in the order of their sequence numbers.
//   - Every accepted message gets exactly one outcome, and the counters add up to the number accepted.
//   - A ready session of one principal waits for at most one start of each other principal before its principal has one.
//   - A principal never has more bounded turns than PrincipalTurns, but for those that come back from Yield.
//   - Whenever a slot is free and a turn may start, it starts. A place that a principal holds while its lane is full counts as used.
//   - A panic is an outcome of its turn, with the stack in the log.
//   - An idle session costs nothing: no goroutine, no timer, no entry.
//   - Submit and the stops never wait, however full a lane is.
//   - A session that is suspended starts no turn; nothing else about it changes.
//
// # What it does not do
//
// It keeps nothing over a restart, does not retry, does not answer, and does not know which process owns a session. It recognises
// duplicates only while a message waits or runs. A durable store decides all of these; to give up one session to
// another owner, Reset it.
//
// It limits no turn in time: a runner does so with a context of its own.
//
// It refuses no message for the number of messages that wait. The store decides which message loses its place in a full queue, and Drop
// removes that message here. WaitingOf is for a caller that bounds the waiting messages of a principal. Turns
// of a principal can be bounded (PrincipalTurns): a session whose next turn is over the bound stands in the principal's line
// instead of the lane's.
//
// # How it ends
//
// Drain refuses what is new, ends what waits as cleared, lets turns end until its context is over, cancels the rest, and returns
// when everything that was started has ended or the grace is over. The end of the work context that New was given does
// the same without waiting.
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
