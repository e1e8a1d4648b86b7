// Package socket has the WebSocket connections of the gateway: accepted connections within limits, the upgrade, reading and writing, the buffer of what is
// to be sent, and the hub that knows which connection gets which event.
//
// # Ideas
//
// [ConnLimiter] counts connections before anything is read of them, in total and, while they are unauthenticated, by address. It sets a deadline for each write
// of a plain HTTP answer, so that a client that does not read keeps nothing.
//
// [Conn] owns one connection from the upgrade to the close frame: deadlines, pings and their pongs, close codes. The protocol above it is a [Client]: it takes
// messages, and puts frames and events into the connection's [Buffer].
//
// [Buffer] separates producers from the one writer of a connection. A producer never waits: it appends and continues. The buffer merges unsent text of a run,
// replaces unsent states by newer ones, and keeps everything else in order. It closes the connection of a client that does not keep up, and never drops
// anything else. Events are numbered when they are written, so that merging leaves no gap.
//
// The responses that wait for one principal, over all its connections, have a bound as well, and those of all principals: over it the connection with most
// of them is closed. The bytes of events are shared by all connections that get them, and count for none.
//
// A gate keeps the events of a run back until the response of the request that started it is queued; see [Buffer.Gate].
//
// [Hub] has the places of sockets, the connections of each principal, and the subscriptions. It knows connections by identity only.
//
// # Locks and goroutines
//
// Each type has one lock, held for memory operations only; no callback runs under it, except the one of [Hub.Open], which queues a frame. A connection has one
// goroutine that reads. Its stack has 2 KiB as long as it only waits: it waits with nothing of the library on the stack, and takes pings and pongs by itself. The
// handshake runs in another goroutine, before it, because it grows the stack to four times that size. Messages do so as well: with a tick, a reader that has
// received something and waits again starts another and ends. The writer is a goroutine only while something is queued or due: an idle connection has a timer
// instead. [Client.Closed] is called when all of them have ended. A buffer that is over its limit has one timer, which stops with the buffer.
//
// # Bounds and crash points
//
// Memory of a buffer is bounded by twice its limit plus one item, the responses of one principal by four limits, those of all by sixteen, and messages by
// [Config]. An idle connection takes about 5.5 KB of heap and stack. Nothing here is durable: a client reads state again after it reconnects.
//
// # What it does not do
//
// It knows no credential, no method and no JSON beyond the envelope of an event. It checks no origin and no host.
//
// # How it ends
//
// [Conn.End] lets queued frames be written for a few seconds and then sends a close frame; [Conn.Cut] closes at once. [Hub.Close] refuses new connections,
// and [Hub.Wait] waits for those that exist.
package socket
