// Package telegram is the channel by which people talk to agents through a Telegram bot.
//
// # What comes in
//
// One process per bot polls: the one that holds the lease with the channel's name. Updates are worked on in order within a chat and side
// by side between chats, so a slow download delays one conversation, and in it everything but an urgent command (/stop): that leaves its place after
// half a second and goes by. Telegram forgets an update only when a later call names a higher offset, and the offset that is named here is
// that of the first update which is not settled. Settled means: the message is durable
// (the house has taken it), or there is a reason to do nothing. A process that ends anywhere therefore loses nothing; what comes again is known to the
// store by its number. A life of [Channel.Run] begins without an offset, because what was confirmed is Telegram's knowledge: the highest number that
// was accepted proves nothing about the ones before it when chats do not wait for each other.
//
// An update that fails for a reason of its own is tried three times and put aside. An update that fails because the store is away is tried
// as long as that lasts; meanwhile nothing more is fetched. While the house drains its messages wait likewise, but fetching goes on for the sake of
// what is urgent. A download is given up five seconds after it holds fifty updates back: Telegram hands out only a hundred beyond the oldest.
//
// # Who may talk
//
// Identity is numbers: bot, person, chat. Policies are pairing (a code that the operator approves), a list, everybody, nobody. A pairing is
// good for one chat. Groups need their number in a list. Whoever is not let in costs no session, no row and no call of a model.
//
// # What goes out
//
// The outbox calls [Channel.Send]. Markdown is parsed by goldmark and written as pieces of text with a style; they are split by what
// people see (4096 UTF-16 units), at borders of blocks, lines or words, and only then written as HTML. So no part has an open
// tag and a part that Telegram refuses anyway goes out as plain text; one that it finds too long is split smaller. Counted windows keep the bot below the limits for itself, a chat and a group;
// a retry_after silences its chat and nobody else. A long reply remembers which parts have arrived, in memory: a further attempt goes on
// behind them, and only a process that ends in between sends parts twice.
//
// While a turn runs its text is shown: in private chats as a draft, where the API has drafts, else as a message that is edited at most
// once a second. The final text takes the place of that message. A state that would look the same is not sent. Which message shows an answer is kept in memory: when a
// process is killed while a message grows, that message stays as it is, and the answer, which the next process gives, is another one below it. When nobody knows whether the
// first message of a preview has arrived, no second one is posted, so at most one stays behind there as well.
//
// A file goes out by [Channel.SendFile], streamed from the directory for attachments: pictures and voices as such, the rest, and what Telegram does not
// take as what it looks like, as a document. One that is not there is told in words.
//
// A choice goes out as buttons with random ids; what they say is kept by the store, so they outlive the process. A press is a message of the person
// and used up before that message is durable; Telegram delivers a press again that was not confirmed, and the same press says the same.
//
// # What it promises
//
//   - No failure of Telegram, the network or the store ends Run. Status tells how it stands.
//   - The token is in no error, log line or metric. The library that encodes the calls never has it.
//   - Every call has a deadline, and after a failure the next one uses a new connection. A network that heals is noticed within 15 seconds.
//   - Nothing waits without a bound: updates in work, codes, previews, windows and memories all have one.
//
// # What it does not do
//
// It does not decide what a message means (commands are the table's, see /activation for the one exception), does not keep anything
// durable itself. Edited messages, reactions, votes and posts of channels begin no turn.
//
// # How it ends
//
// When the context of Run is over, the poll is given up, updates in work are left unconfirmed, previews stop where they are, and Run
// returns once their goroutines have ended. Send works as long as somebody calls it.
//
//	ch, err := telegram.New(telegram.Config{Token: token, Agent: "main", Allow: []int64{7}}, telegram.Deps{Records: store})
//	// … a dispatcher is made that sends through ch, then
//	err = ch.Run(ctx, dispatcher)
package telegram
