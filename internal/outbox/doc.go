// Package outbox sends the outgoing messages of the store through their channels.
//
// # The stages of a row
//
// A claimed row goes through a fixed list of stages ([Sender.pipeline]): expire, transmit, confirm, reschedule. Each has one task, and ends the row's attempt
// or passes it to the next stage. Rows are claimed for the channels that are available now, at most one per chat, and are sent concurrently, so that a slow
// chat delays only itself.
//
// # Cooldowns
//
// The type [cooldowns] records for each channel until when nothing is claimed: because the provider requested a pause in every chat, or because the channel
// reports its provider as unreachable. Claiming rows of such a channel would only use up their attempts. An unreachable channel is probed with a few rows each
// minute; the channel itself checks its provider with calls that are safe to repeat.
//
// # Retries
//
// The next attempt of a row is a time in the row, not a waiting goroutine: it survives a restart. The channel decides whether an error is transient
// ([channel.SendError]); the wait follows the formula of package retry, or the request of the provider. Attempts that failed for reasons other than the message
// do not count; the message then ends by its age.
//
// # Crash points
//
// Before transmit: the row is claimed again when the node's lease has ended. Between transmit and confirm: the provider may have the message, the row is
// claimed again with MaybeSent and may arrive twice. This is the only place where people can notice at-least-once delivery. It concerns one request: a channel
// that sends a message in parts records each part ([channel.Claim]), and the next attempt continues after it.
//
// # A claim that ends
//
// A process that was suspended for longer than its lease still runs the code of its attempts. Immediately before each request, after any wait, the channel
// checks the claim with [channel.Claim]. Without the claim nothing is sent, and the row is returned if this process still owns it. At most one request per chat
// can already be on the wire.
//
// # Goroutines and the end
//
// [Sender.Run] owns the loop and one goroutine for each row that is being sent, at most [batch] of them; it returns when they have ended. [Sender.Drain] ends
// the sending while the process is still in the table of nodes: it claims due rows for a second, then prevents new requests, and waits for those in progress.
// Rows that are left at its deadline end as maybe_sent, because a repetition could duplicate them.
//
// # What it does not do
//
// It does not handle commands, turns and jobs. A row whose address no longer exists is passed to [Config.Gone], which pauses the delivery of its job.
package outbox
