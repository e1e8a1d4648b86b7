// Package socket has the transport below the gateway's WebSocket connections: accepted connections within limits, the TCP connection below a socket, and the
// buffer of frames that wait to be sent.
//
// # Ideas
//
// [ConnLimiter] counts connections before anything is read of them, in total and, while they are unauthenticated, by address. It sets a deadline for each write
// of a plain HTTP answer, so that a client that does not read keeps nothing.
//
// [Buffer] separates producers from the one writer of a connection. A producer never waits: it appends and continues. The buffer merges unsent text of a run,
// replaces unsent states by newer ones, and keeps everything else in order. It closes the connection of a client that does not keep up, and never drops
// anything else.
//
// A gate keeps the events of a run back until the response of the request that started it is queued; see [Buffer.Gate].
//
// [NetConn] lets a writer that waits in a write be interrupted: after LimitWrites no frame can move the deadline.
//
// # Locks and goroutines
//
// Each type has one lock, held for memory operations only; no callback runs under it. The package starts no goroutine. A buffer that is over its limit has one
// timer, which stops with the buffer.
//
// # Bounds and crash points
//
// Memory of a buffer is bounded by twice its limit plus one item. Nothing here is durable: a client reads state again after it reconnects.
//
// # What it does not do
//
// It knows no credential, no method and no JSON: items have a name and bytes, except text of runs, whose frames are made when they are written.
package socket
