// Package socket has the WebSocket connections of the gateway: accepted connections within limits, the upgrade, reading and writing, the
// send buffer, and the hub that decides which connection receives which event.
//
// # Ideas
//
// [ConnLimiter] counts connections before anything is read from them, in total and, while they are unauthenticated, by address. It sets a
// deadline for each write of a plain HTTP answer, so that a client that does not read holds no resources.
//
// [Conn] owns one connection from the upgrade to the close frame: deadlines, pings and their pongs, close codes. The protocol on it is a
// [Client], which handles messages, and puts frames and events into the connection's [Buffer].
//
// [Buffer] separates producers from the writer of a connection. A producer never blocks: it appends and continues. The buffer merges unsent
// text of a run, replaces unsent states by newer ones, and keeps everything else in order. It closes the connection of a client that reads
// too slowly, and never drops anything else. Events are numbered when they are written, so that merging leaves no gap.
//
// The waiting responses of one principal, over all its connections, are limited as well, and those of all principals. Beyond the limit, the
// connection with most of them is closed. The bytes of events are shared by all connections that receive them, and are not counted.
//
// A gate holds back the events of a run until the response to the request that started it is queued; see [Buffer.Gate].
//
// [Hub] has the places of sockets, the connections of each principal, and the subscriptions. It uses connections only as map keys.
//
// # Locks and goroutines
//
// Each type has one lock, held only for memory operations; no callback runs under it, except that of [Hub.Open], which queues a frame. A
// connection has one goroutine that reads. While it only waits, its stack has 2 KiB: it waits without a frame of the library on the stack,
// and handles pings and pongs itself. The handshake runs before it on another goroutine, because it grows the stack to four times that
// size. Messages do so as well: at a tick, a reader that has received a message and waits again starts another reader and ends. The writer
// is a goroutine only while something is queued or due: an idle connection has a timer instead. [Client.Closed] is called when all of them
// have ended. A buffer that is over its limit has one timer, which stops with the buffer.
//
// # Limits and crash points
//
// Memory of a buffer is limited to twice its limit plus one item, the responses of one principal to four limits, those of all to sixteen,
// and messages by [Config]. An idle connection needs about 5.5 KB of heap and stack. Nothing here is durable: a client reads state again
// after it reconnects.
//
// # What it does not do
//
// It has no credentials, no methods and no JSON beyond the envelope of an event. It checks no origin and no host.
//
// # Shutdown
//
// [Conn.End] lets queued frames be written for a few seconds and then sends a close frame; [Conn.Cut] closes at once. [Hub.Close] refuses new connections,
// and [Hub.Wait] waits for those that exist.
package socket
