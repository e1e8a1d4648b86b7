// Package gateway is the HTTP server of laneway: every client that uses HTTP or WebSocket connects to it.
//
// It turns frames into calls and events into frames, decides which caller may do what, and protects the process from clients that are broken, slow or hostile.
// It knows no lane, no SQL and no agent: all work is behind [Backend]. The methods are packages by subject (conversation, jobs, pairing) over the table of
// package rpc; the methods that show the gateway as a whole are here. Package wire has the types of the protocol.
//
// # Ideas
//
// One table. Every method is one row: name, scope, types of its parameters and its result, handler. The row decides what can be called, which parameters are
// accepted and within which bounds, what the documentation has and what the tests go through. What is not in the table does not exist.
//
// One writer per connection. A goroutine that has something for a client puts it into the connection's send buffer and goes on; it never
// waits for another connection. The buffer merges unsent text of a run, replaces unsent pictures of a state, and keeps
// everything else in order. Events are numbered when they are written, so merging leaves no gap. A reader that does not keep up is
// closed, and never loses a response silently: a response is delivered, or the connection is gone.
//
// Runs do not belong to connections. A request works on when its client has left, because its effect is durable and the same
// idempotency key finds it again. Only the wait for the second frame of `agent` ends with the connection.
//
// A gate keeps the order. Before a message is given to the backend its connection closes a gate for the run; events that come while
// the gate is closed wait behind it, and it opens when the response is queued. So the response comes first even when the run has
// ended before the call returned.
//
// # Promises
//
//   - A connection gets the challenge and nothing else before its credential was verified; scopes and visibility are looked at again with every
//     request and every event.
//   - Every request gets exactly one answer (two for `agent`) within its deadline, or the connection is closed.
//   - The response to chat.send and agent precedes every event of its run on that connection; events of a run keep their order.
//   - Memory per connection is bounded: message size, requests in flight, send buffer, runs followed.
//   - Accepted connections are counted before anything is read of them, in all and, while they are not authenticated, per address.
//     What is written to one has a deadline, so that a client that does not read keeps nothing.
//   - A credential that is gone, changed or expired closes its connections within five seconds.
//
// # What it does not do
//
// It keeps no state that matters: there is no replay of events, a new connection reads state (chat.history with its cursor). It
// terminates no TLS and reads no secret from URLs, cookies or upgrade headers. It does not decide about messages: order,
// queues, commands and idempotency are the backend's.
//
// # How it ends
//
// [Server.Drain] announces the end: `shutdown` to every connection, no new connects. When the context of [Server.Serve] is over, the
// listeners close, every client gets `shutdown` and close 1012, and Serve waits for connections and requests, up to a bound.
// Every goroutine that it started has returned then, unless its error names one that has not.
//
// # Example
//
//	srv, err := gateway.New(gateway.Config{
//		Version:     "1.2.0",
//		Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256(secret), Scopes: []string{chat.ScopeAdmin}}},
//	}, dispatcher, log)
//	if err != nil {
//		return err
//	}
//	return srv.Serve(ctx, listener)
//
//go:generate go run ./gendoc -out ../../docs -wire ../wire -types ../dashboard/types
package gateway
