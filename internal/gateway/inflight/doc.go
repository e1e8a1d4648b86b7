// Package inflight limits the resources of unanswered requests of one principal, over all its connections: places to work, and bytes of
// messages.
//
// # Ideas
//
// A [Share] belongs to one principal. Work of each [Kind] needs a place of the share: a call, a control call, a list, the parsing of a long
// text. The places limit the memory of lists, the processors that large messages use, and how many operations of one principal precede
// those of another in the queues of the store. Work without a place waits in the order of arrival, as long as its context allows.
//
// The bytes of messages that were read and are not answered are limited for each share and, for long messages, for the process. A message
// takes its bytes with [Share.Hold] before more than [ShortMessage] of it is read. Meanwhile a connection whose message does not fit is not
// read, so that the sender waits instead of memory growing. Short messages have separate bytes: a health request does not wait for long
// messages.
//
// Parsing long messages and reading lists use a processor for many milliseconds. Principals that see only their own sessions may together use
// half of the processors for both, so that the goroutine of another connection does not wait for theirs in the run queues.
//
// A principal that sees all sessions belongs to the operator and has several times as many places as one that sees only its own.
//
// # Goroutines, locks, crash points
//
// It starts no goroutine. The map of shares has a lock that is never held while waiting. Nothing is durable. Shares are not removed: there
// is one for each credential.
//
// # What it does not do
//
// It counts nothing over time: the allowances per minute are in package auth. It does not limit answers: those are in the send buffers of
// package socket.
package inflight
