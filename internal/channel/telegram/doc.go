// Package telegram is the channel by which people talk to agents through a Telegram bot.
//
// # Parts
//
// [Channel] has the life cycle; one type does each task. Updates go through poller or deliveries (the webhook), intake (order and offset) and inbound
// (access, limits, content) to the receiver. Replies go through sender (splitting, progress), poster (one message in the form that Telegram accepts)
// and client (one call). The limiter has all rate limits and cooldowns. Signs (typing, reactions), notes and previews are calls outside of the
// outbox.
//
// # Incoming messages
//
// One process per bot polls: the one that holds the lease with the channel's name. Updates are handled in order within a chat and concurrently
// between chats, so a slow download delays one conversation only. An urgent command (/stop) waits for half a second and then overtakes the earlier
// updates of its chat.
//
// Telegram deletes an update when a later call has a higher offset. The offset is that of the first update that is not settled. An update is
// settled when the message is durable (the receiver has accepted it), or when nothing is to be done. A crash at any point therefore loses
// nothing; the store recognizes a repeated update by its number. [Channel.Run] starts without an offset, and Telegram returns what was not
// confirmed. The highest accepted number would prove nothing about earlier updates, because chats do not wait for each other.
//
// An update that fails because of its content is tried three times and parked. An update that fails because the store cannot be reached is retried
// until it succeeds; meanwhile no further updates are fetched. While the gateway drains, messages wait in the same way, but fetching continues,
// because urgent commands are still executed. Once fifty updates wait after the update of a download, the download ends within five seconds:
// Telegram returns only a hundred updates from the oldest one on.
//
// # Who may talk
//
// Bot, person and chat are identified by their numbers. The policies are pairing (a code that the operator approves), a list, every person, and
// disabled. A pairing is valid for one chat. A group must be in a list by its number. A message that is not admitted creates no session and no row,
// and calls no model.
//
// # Outgoing messages
//
// The outbox calls [Channel.Send]. Markdown is parsed by goldmark into pieces of text with a style. These are split by the length of the visible text
// (4096 UTF-16 units), at borders of blocks, lines or words, and only then written as HTML, so no message has an open tag. A message that Telegram
// refuses nevertheless is sent as plain text; a message that it finds too long is split into smaller ones.
//
// Sliding windows keep the bot below the limits of the bot, a chat and a group. A retry_after is a cooldown of its chat, or of the bot when the call
// was for no chat. The messages of a long reply that have arrived are recorded with its row: a further attempt, in any process, continues after them.
//
// While a turn runs, its text is shown: in private chats as a draft, if the API has drafts, otherwise as a message that is edited at most once a
// second. One line below the text shows what the agent does and for how long; it changes every ten seconds. The final text replaces that message.
// Without a reply the line is removed, and a message with nothing else is deleted. A state that would look the same is not sent. The id of the
// message is in memory until the final text is sent. If a process is killed during a preview, its message stays, and the answer, which the next
// process sends, is another message below it. If it is unknown whether the first message of a preview has arrived, no second one is posted, so at
// most one stays in that case as well.
//
// A file is sent by [Channel.SendFile], streamed from the directory for attachments: pictures and voice messages as such; other files, and those
// that Telegram refuses in that form, as documents. A line of text replaces a file that does not exist.
//
// A choice is sent as buttons with random ids. Their content is in the store, so they outlive the process. A press is a message of the person. The
// button is used up before that message is durable; Telegram repeats a press that was not confirmed, and the same press has the same text.
//
// # Guarantees
//
//   - A failure of Telegram, the network or the store does not end Run. Status shows the state of the connection.
//   - The token is in no error, log line or metric. The library that encodes the calls never has it.
//   - Every call has a deadline, and after a failure the next one uses a new connection. A recovered network is noticed within 15 seconds.
//   - Nothing waits without a bound: unfinished updates, codes, previews, windows and memories all have one.
//
// # Crash points
//
// Before Receive has returned: Telegram returns the update again. Between the delivery of a message and its record in the outbox: the message is sent
// twice. Between two messages of one reply: the earlier ones are sent twice.
//
// # What it does not do
//
// It does not interpret messages: commands are the gateway's table, with the exception of /activation. It keeps nothing durable itself.
// Edited messages, reactions, votes and posts of channels begin no turn.
//
// # Goroutines and the end
//
// Run polls in the goroutine of its caller. The intake owns one goroutine per chat with unfinished updates and one per urgent command that waits;
// previews owns one per answer that is shown. When the context of Run is done, the poll is canceled, unfinished updates stay unconfirmed, previews
// stop in their current state, and Run returns after these goroutines have ended. Send, Ask and SendFile work also while Run does not run.
//
//	ch, err := telegram.New(telegram.Config{Token: token, Agent: "main", Allow: []int64{7}}, telegram.Deps{Records: store})
//	// … a dispatcher is made that sends through ch, then
//	err = ch.Run(ctx, dispatcher)
package telegram
