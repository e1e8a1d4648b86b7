// Package inflight bounds what the unanswered requests of one principal hold, over all its connections: places to work, and bytes of messages.
//
// # Ideas
//
// A [Share] belongs to one principal. Work of each [Kind] needs a place of the share: a call, a call that looks or stops, a list, the parsing of a long text.
// The places bound the memory of lists, the processors that large messages take, and how many operations of one principal are in the queues of the store
// before those of another. Work without a place waits, in the order in which it came, as long as its context allows.
//
// The bytes of messages that were read and are not answered are bounded for each share and, for long messages, for the process. A message takes its bytes
// with [Share.Hold] before more than [ShortMessage] of it is read. A connection whose message does not fit is not read meanwhile, so that the sender waits and
// not the memory of the process. Short messages have bytes of their own: a question about health does not wait behind long messages.
//
// Parsing long texts and reading lists take a processor for many milliseconds. Principals that see their own sessions have half of the processors for both, all
// of them together, so that the goroutine which answers another connection does not wait behind theirs in the queues of the runtime.
//
// A principal that sees all sessions belongs to the operator and has several times as many places as one that sees its own.
//
// # Goroutines, locks, crash points
//
// It starts no goroutine. The map of shares has a lock that is never held while waiting. Nothing is durable. Shares are never removed: there is one for each
// credential.
//
// # What it does not do
//
// It counts nothing over time: allowances a minute are those of package auth. It bounds no answers: those are in the send buffers of package socket.
package inflight
