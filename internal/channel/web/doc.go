// Package web is the channel of those who read their conversations through the gateway itself: dashboards, terminals, every client of the
// protocol. There is no provider behind it: what is delivered is a line of the session's transcript, and whoever watches is told.
//
// What such people say comes in through the gateway's methods and not through [Channel.Run], and the answer to it is in the transcript with the end
// of its turn. This channel is for what is said to a session from outside of it: the answer of a job, an alert, the reply of a turn that another
// session ran. Those are rows of the outbox as for every other channel, written with the end of the run that they tell of, and so a process that dies
// in between loses none of them.
//
// The chat of a target is a whole session key. A reply is delivered once, by its id: the sink keeps the id with the line ([TranscriptSink]), so that a
// second attempt after a crash finds the line instead of adding another. A session that does not exist is made, because a target such as the main
// session of an agent is an address before anybody has used it. What can never work is refused for good: no session key, an unknown agent, a session
// of somebody else. Everything else is the store's trouble, and the outbox tries again.
package web
