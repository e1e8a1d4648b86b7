// Package chat is the vocabulary of laneway: what a message, a reply, a session key, an event and an error are.
//
// It has no behaviour beyond parsing, formatting and checking its own values, starts no goroutine, and imports the standard
// library only. Every other package uses its terms, so a word means one thing in code, tables, wire and metrics.
//
// # Words
//
// A [Message] is one input of a session. It is accepted (durable) under a sequence number of its session
// and ends with exactly one [Outcome]. A turn (run) is one execution of the agent over one or several messages; its
// id is the id of the message that leads it, and stays the same over attempts. An [Event] informs watchers about a run
// or a session after the fact. A [Reply] is what goes out to a channel.
//
// # Errors
//
// An [Error] has a [Code] for programs and a sentence for people. Everything that is not an *Error is a defect or the
// world's failure: borders show it as internal and log it in full.
package chat
