// Package scheduler decides when a turn runs. It orders the messages of each session, merges what belongs together, limits how
// many turns run at once, and stops them. It knows nothing of agents, channels, SQL or HTTP and imports the standard
// library only; a message is a type parameter that it never looks at.
//
// # Words
//
// A message is one thing that somebody said to a session. A turn is one execution over one or several merged messages; the
// last of them leads it and gives it its id. A lane is a named limit on turns that run at once. A ticket is the promise
// of one message's outcome.
//
// # Central ideas
//
// One mutex guards everything and is held for bookkeeping only. What a decision leaves to be done, such as starting a
// goroutine, cancelling a context, completing a ticket or writing a log line, is collected in a value on the stack and done
// after the mutex was released.
//
// No goroutine waits for a slot. A session with a turn that may start stands once in its lane's ready list. Whoever frees a
// slot or brings work takes the next session of it. Ten thousand waiting messages are ten thousand list entries.
//
// A lane is shared by principals, then by sessions, not by messages. The ready sessions of one principal in one lane are its subqueue, and the
// subqueues form a ring. A start takes the first session of the first subqueue. The principal of the last start goes to the end of the ring before
// the next one, behind principals who came meanwhile: so a single message of another principal takes the next slot, and no principal starts
// twice while another one waits that was there before. All of it takes constant time; a principal without waiting work has no record.
//
// A turn keeps its slot and its place in the session until its goroutine has really returned. Cancelling is a request. So a
// serial session never has two turns at once, whatever its runner does with its context.
//
// Waiting messages are kept in units. A unit is what will share a turn: one message, or the batch of a debounce window. The
// window is open while more may join; only the last unit of a session can be open, which keeps the order of a session
// whole. Stop ends a unit as one.
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
//
// # What it does not do
//
// It keeps nothing over a restart, does not retry, does not answer, and does not know which process owns a session. It tells
// duplicates only while a message waits or runs. A store that is durable decides all of these; to give up one session to
// another owner, Reset it.
//
// It limits no turn in time: a runner does so with a context of its own, for which ErrTimeout is at hand.
//
// It refuses no message for the number that its principal has waiting: WaitingOf is for a caller that does. Turns
// of a principal can be bounded (PrincipalTurns): a session whose next turn is over the bound stands in the principal's line
// instead of the lane's.
//
// # How it ends
//
// Drain refuses what is new, hands back what waits, lets turns end until its context is over, cancels the rest, and returns
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
