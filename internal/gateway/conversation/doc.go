// Package conversation has the methods of the protocol by which a client takes part in conversations: messages and runs (chat.send, chat.abort, agent, wake),
// their history (chat.history), and the sessions that they belong to (sessions.*).
//
// # Ideas
//
// A session that a caller may not use does not exist for it. A call that would write into one is refused ([MayUse]). A call that only reads
// receives a view in which the session is empty, so that no answer distinguishes the two cases.
//
// The answer precedes the events of its run. Before a message is passed to the [Backend], the connection follows the run with the gate
// closed; the gate opens when the answer is queued. So the answer is first even when the run ends before the call returns.
//
// A list is limited in bytes, not only in rows. Messages are encoded once, while their bytes are counted.
//
// # What it does not do
//
// It makes no decision about messages: order, queues, commands and idempotency belong to the backend. It keeps no state and starts no
// goroutine.
package conversation
