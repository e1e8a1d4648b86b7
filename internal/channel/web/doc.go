// Package web is the channel of people who read their conversations through the gateway itself: dashboards, terminals, every client of the
// protocol. It has no provider: a delivered reply is a line of the session's transcript, which is published to the session's subscribers.
//
// Messages of these people arrive through the gateway's methods and not through [Channel.Run]. Their answers are written to the transcript at the end
// of the turn. This channel is for replies from outside of the session: the answer of a job, an alert, the reply of a turn that another session ran.
// Those are rows of the outbox as for every other channel, written in the transaction that ends their run, so a crash loses none of them.
//
// The chat of a target is a whole session key. A reply is delivered once, by its id: the sink stores the id with the line ([TranscriptSink]), so that
// a second attempt after a crash finds the line instead of adding another. A session that does not exist is created, because a target such as the
// main session of an agent is valid before its first message. Permanent errors are an invalid session key, an unknown agent, and a session of another
// principal. Every other failure is the store's, and the outbox retries.
//
// The package starts no goroutine.
package web
