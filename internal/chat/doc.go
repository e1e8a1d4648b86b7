// Package chat defines the terms of laneway: message, reply, session key, event and error.
//
// It only parses, formats and checks its own values, starts no goroutine, and imports only the standard library. Every other package uses
// its terms, so a term means the same in code, tables, wire and metrics.
//
// # Terms
//
// A [Message] is one input of a session. It is accepted (durable) under a sequence number of its session and ends with exactly one
// [Outcome]. A turn (run) is one execution of the agent for one or several messages. Its id is the id of the message that leads it, and stays the
// same across attempts. An [Event] reports a change of a run or a session after it happened. A [Reply] is a message that is sent to a
// channel.
//
// # Errors
//
// An [Error] has a [Code] for programs and a sentence for people. Every other error is a defect or a failure of the environment: transports
// report it as internal and log it in full.
package chat
