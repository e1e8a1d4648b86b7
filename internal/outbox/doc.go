// Package outbox sends the outgoing messages of the store through their channels.
//
// # The way of one row
//
// A claimed row goes through a fixed list of stages ([Sender.pipeline]): expire, transmit, confirm, reschedule. Each has one task, and ends the
// row's attempt or passes it on. Rows are claimed for the channels that may be sent to now, at most one per chat, and are sent beside
// each other, so that a slow chat delays itself.
//
// # Cooldowns
//
// One memory ([cooldowns]) has by channel until when nothing is claimed: because the provider asked for a pause in every chat, or because the
// channel reports its provider as unreachable. To claim rows of such a channel would only use up their attempts. An unreachable channel is
// probed with a few rows each minute; the channel itself finds out with calls that can be repeated without harm.
//
// # Retries
//
// The next attempt of a row is a time in the row, not a waiting goroutine: it survives a restart. The channel decides whether an error may pass
// ([channel.SendError]); the wait is the formula of package retry, or what the provider asked for. Attempts that failed although nothing is wrong with
// the message do not count; its age ends it then.
//
// # Crash points
//
// Before transmit: the row is claimed again when the node's lease is over. Between transmit and confirm: the provider may have the message,
// the row is claimed again with MaybeSent and may arrive twice. That is the one place where at-least-once is visible to a person. It concerns one request:
// a channel that sends a message in parts records each part ([channel.Claim]), and the next attempt continues after it.
//
// # A claim that ends
//
// A process that was stopped for longer than its lease still runs the code of its attempts. The channel asks [channel.Claim] directly before each
// request, after any wait, whether the claim holds; without it nothing is sent, and the row is given back if it is still that of this process. A request
// that was on the wire before is at most one in a chat.
//
// # Goroutines and the end
//
// [Sender.Run] owns the loop and one goroutine for each row that is being sent, at most [batch] of them; it returns when they have ended. [Sender.Drain]
// is the end, while the process is still in the table of nodes: it claims what is due for a second, then lets no request begin, and waits for those under
// way. What is left at its deadline ends as maybe_sent: a repetition could duplicate it.
//
// # What it does not know
//
// Commands, turns and jobs. A row whose address is gone for good is passed to [Config.Gone], which pauses the delivery of the job behind it.
package outbox
