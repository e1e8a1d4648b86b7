// Package gateway is the HTTP server of laneway: every client that uses HTTP or WebSocket connects to it.
//
// It converts frames to calls and events to frames, decides which caller may do what, and protects the process from clients that are
// broken, slow or hostile. It has no access to lanes, SQL and agents: [Backend] does all work. The methods are in packages by subject
// (conversation, jobs, pairing) and use the table of package rpc; the methods for the gateway as a whole are here. Package wire has the
// types of the protocol.
//
// # Ideas
//
// One table. Every method is one row: name, scope, types of its parameters and its result, handler. The row defines what can be called,
// which parameters are accepted within which limits, what the documentation contains and what the tests cover. A method that is not in the
// table does not exist.
//
// One writer per connection. A goroutine with data for a client puts it into the connection's send buffer and continues; it never waits for
// another connection. The buffer merges unsent text of a run, replaces unsent snapshots of a state, and keeps everything else in order.
// Events are numbered when they are written, so merging leaves no gap. A connection whose client reads too slowly is closed. A response is
// never lost silently: either it is delivered, or the connection is closed.
//
// Runs do not belong to connections. A request continues when its client has disconnected, because its effect is durable and the same
// idempotency key finds it again. Only the wait for the second frame of `agent` ends with the connection.
//
// A gate preserves the order. Before a message is passed to the backend, its connection closes a gate for the run. Events that arrive while
// the gate is closed wait for it, and it opens when the response is queued. So the response is first even when the run has ended before the
// call returned.
//
// # Guarantees
//
//   - A connection receives only the challenge before its credential is verified; scopes and visibility are checked again with every
//     request and every event.
//   - Every request has exactly one answer (two for `agent`) within its deadline, or the connection is closed.
//   - The response to chat.send and agent precedes every event of its run on that connection; events of a run keep their order.
//   - Memory per connection is limited: message size, requests in flight, send buffer, followed runs.
//   - Accepted connections are counted before anything is read from them, in total and, while they are unauthenticated, per address. Writes
//     to a connection have a deadline, so that a client that does not read holds no resources.
//   - When a credential is removed, changed or expired, its connections are closed within five seconds.
//
// # What it does not do
//
// It keeps no durable state: events are not replayed, and a new connection reads the state (chat.history with its cursor). It terminates no
// TLS and reads no secret from URLs, cookies or upgrade headers. It makes no decision about messages: order, queues, commands and
// idempotency belong to the backend.
//
// # Shutdown
//
// [Server.Drain] announces the shutdown: it sends `shutdown` to every connection and refuses new connects. When the context of
// [Server.Serve] is done, the listeners close, every client receives `shutdown` and close 1012, and Serve waits for connections and
// requests, up to a limit. Every goroutine that it started has returned then, unless its error names one that has not.
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
