// Package telegram is the channel by which people talk to agents through a Telegram bot.
//
// # Parts
//
// [Channel] has the life cycle; one type does each task. Updates go through poller or deliveries
// (the webhook), intake (order and offset) and inbound (access, limits, content) to the receiver.
// Replies go through sender (splitting, progress), poster (one message in the form that Telegram
// accepts) and client (one call). The limiter has all rate limits and cooldowns. Signs (typing,
// reactions), notes and previews are calls outside of the outbox.
//
// # Incoming messages
//
// One process per bot polls: the one that holds the lease with the channel's name. Updates are
// handled in order within a chat and concurrently between chats, so a slow download delays one
// conversation only. An urgent command (/stop) waits for half a second and then overtakes the
// earlier updates of its chat.
//
// Telegram deletes an update when a later call has a higher offset. The offset is that of the first
// update that is not settled. An update is settled when the message is durable (the receiver has
// accepted it), or when nothing is to be done. A crash at any point therefore loses nothing; the
// store recognizes a repeated update by its number. [Channel.Run] starts without an offset, and
// Telegram returns what was not confirmed. The highest accepted number would prove nothing about
// earlier updates, because chats do not wait for each other.
//
// An update that fails because of its content is tried three times and parked. An update that fails
// because the store cannot be reached is retried until it succeeds; meanwhile no further updates
// are fetched. While the gateway drains, messages wait in the same way, but fetching continues,
// because urgent commands are still executed. Once fifty updates wait after the update of a
// download, the download ends within five seconds: Telegram returns only a hundred updates from the
// oldest one on.
//
// # Who may talk
//
// Bot, person and chat are identified by their numbers. The policies are pairing (a code that the
// operator approves), a list, every person, and disabled. A pairing is valid for one chat. A group
// must be in a list by its number. A message that is not admitted creates no session and no row,
// and calls no model.
//
// # Outgoing messages
//
// The outbox calls [Channel.Send]. Markdown is parsed by goldmark into pieces of text with a style.
// These are split by the length of the visible text (4096 UTF-16 units), at borders of blocks,
// lines or words, and only then written as HTML, so no message has an open tag. A message that
// Telegram refuses nevertheless is sent as plain text; a message that it finds too long is split
// into smaller ones.
//
// Sliding windows keep the bot below the limits of the bot, a chat and a group. A retry_after is a
// cooldown of its chat, or of the bot when the call was for no chat. The messages of a long reply
// that have arrived are recorded with its row: a further attempt, in any process, continues after
// them.
//
// While a turn runs, its text is shown: in private chats as a draft, if the API has drafts,
// otherwise as a message that is edited at most once a second. One line below the text shows what
// the agent does and for how long; it changes every ten seconds. The final text replaces that
// message. Without a reply the line is removed, and a message with nothing else is deleted. A state
// that would look the same is not sent. The id of the message is in memory until the final text is
// sent. If a process is killed during a preview, its message stays, and the answer, which the next
// process sends, is another message below it. If it is unknown whether the first message of a
// preview has arrived, no second one is posted, so at most one stays in that case as well.
//
// A file is sent by [Channel.SendFile], streamed from the directory for attachments: pictures and
// voice messages as such; other files, and those that Telegram refuses in that form, as documents.
// A line of text replaces a file that does not exist.
//
// A choice is sent as buttons with random ids. Their content is in the store, so they outlive the
// process. A press is a message of the person. The button is used up before that message is
// durable; Telegram repeats a press that was not confirmed, and the same press has the same text.
//
// # Guarantees
//
//   - A failure of Telegram, the network or the store does not end Run. Status shows the state of
//     the connection.
//   - The token is in no error, log line or metric. The library that encodes the calls never has
//     it.
//   - Every call has a deadline, and after a failure the next one uses a new connection. A
//     recovered network is noticed within 15 seconds.
//   - Nothing waits without a bound: unfinished updates, codes, previews, windows and memories all
//     have one.
//
// # Crash points
//
// Before Receive has returned: Telegram returns the update again. Between the delivery of a message
// and its record in the outbox: the message is sent twice. Between two messages of one reply: the
// earlier ones are sent twice.
//
// # What it does not do
//
// It does not interpret messages: commands are the gateway's table, with the exception of
// /activation. It keeps nothing durable itself. Edited messages, reactions, votes and posts of
// channels begin no turn.
//
// # Goroutines and the end
//
// Run polls in the goroutine of its caller. The intake owns one goroutine per chat with unfinished
// updates and one per urgent command that waits; previews owns one per answer that is shown. When
// the context of Run is done, the poll is canceled, unfinished updates stay unconfirmed, previews
// stop in their current state, and Run returns after these goroutines have ended. Send, Ask and
// SendFile work also while Run does not run.
//
//	ch, err := telegram.New(telegram.Config{Token: token, Agent: "main", Allow: []int64{7}}, telegram.Deps{Records: store})
//	// … a dispatcher is made that sends through ch, then
//	err = ch.Run(ctx, dispatcher)
package telegram

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Channel is one bot. Make it with New. It is safe for concurrent use.
//
// It has the life cycle and the interfaces of package channel; its parts do the work. Updates pass
// through poller or deliveries → intake → inbound → receiver, replies through sender → poster →
// client. No lock of one part is held while another part is called, except that mu is held while
// the connection is set to its first or last state.
type Channel struct {
	cfg       Config
	identity  *identity
	addresses *addresses
	conn      *connection
	api       *client
	commands  []chat.CommandInfo
	metrics   *Metrics
	log       *slog.Logger

	intake   *intake
	sender   *sender
	signs    *signs
	notes    *notes
	previews *previews

	mu       sync.Mutex
	receiver channel.Receiver // nil while Run does not run
}

var (
	_ channel.Channel  = (*Channel)(nil)
	_ channel.Typer    = (*Channel)(nil)
	_ channel.Streamer = (*Channel)(nil)
	_ channel.Queuer   = (*Channel)(nil)
	_ channel.Asker    = (*Channel)(nil)
	_ channel.Filer    = (*Channel)(nil)

	_ channel.Converser = (*Channel)(nil)
)

// New makes a channel of a valid configuration. It makes no call: Run handles a network that is
// down at the start.
func New(cfg Config, deps Deps) (*Channel, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("telegram: %w", err)
	}
	bot, err := cfg.botID()
	if err != nil {
		return nil, fmt.Errorf("telegram: %w", err)
	}
	if deps.Records == nil {
		return nil, errors.New("telegram: the records of the channel are missing")
	}
	name := "telegram:" + strconv.FormatInt(bot, 10)
	deps = deps.withDefaults(name)
	c := &Channel{
		cfg: cfg, identity: &identity{bot: bot, name: name}, commands: deps.Commands, metrics: deps.Metrics, log: deps.Logger,
		addresses: &addresses{name: name, groups: deps.Records, log: deps.Logger, moved: map[int64]int64{}},
		conn:      &connection{log: deps.Logger, state: stateStopped},
	}
	if cfg.Mode == ModePolling {
		c.conn.overdue = cfg.PollTimeout + 2*pollGrace
	}
	c.wire(deps)
	return c, nil
}

// wire makes the parts: first those that send, then those that handle updates.
func (c *Channel) wire(deps Deps) {
	limits, recent, log := newLimiter(), &recentMessages{at: map[string]messageRef{}}, c.log
	c.api = &client{base: c.cfg.APIURL, token: c.cfg.Token, transport: deps.Transport, metrics: c.metrics, limits: limits}
	poster := &poster{api: c.api, limits: limits, addresses: c.addresses, conn: c.conn, log: log}
	notes := &notes{poster: poster, log: log, recent: newTTLMap(time.Minute)}
	c.notes = notes
	c.signs = &signs{api: c.api, limits: limits, addresses: c.addresses, notes: notes, recent: recent, log: log}
	c.previews = &previews{api: c.api, limits: limits, poster: poster, signs: c.signs, alive: c.alive, log: log, refused: newTTLMap(draftless), all: map[string]*preview{}}
	choices := &choices{identity: c.identity, records: deps.Records}
	c.sender = &sender{
		poster: poster, addresses: c.addresses, previews: c.previews, choices: choices, root: deps.Files, log: log,
		notices: newTTLMap(time.Minute),
	}

	words := &commandWords{identity: c.identity, urgent: map[string]bool{}}
	for _, cmd := range deps.Commands {
		for _, word := range append([]string{cmd.Name}, cmd.Aliases...) {
			words.urgent[word] = cmd.Urgent
		}
	}
	access := &access{
		rules:    accessRules{policy: c.cfg.Access, members: c.cfg.Members, activation: c.cfg.Activation, allow: c.cfg.Allow, groups: c.cfg.Groups},
		identity: c.identity, words: words, records: deps.Records, api: c.api,
	}
	files := &attachments{dir: "telegram-" + strconv.FormatInt(c.identity.bot, 10), limit: c.cfg.MaxAttachment, api: c.api, conn: c.conn, log: log, local: c.cfg.FilesDir}
	if c.cfg.MaxAttachment > 0 {
		files.root = deps.Files
	}
	c.intake = &intake{metrics: c.metrics, log: log, clean: c.api.clean, handler: &inbound{
		cfg:      inboundConfig{agent: c.cfg.Agent, groupStop: c.cfg.GroupStop, userRate: c.cfg.UserRate, userFileBytes: c.cfg.UserFileBytes},
		identity: c.identity, addresses: c.addresses, access: access, words: words, files: files, choices: choices,
		greeter: &greeter{
			allowlist: c.cfg.Access == AccessAllowlist, identity: c.identity, records: deps.Records, notes: notes, metrics: c.metrics, log: log,
			sent: newTTLMap(greetEvery), unsent: newTTLMap(greetingLife),
		},
		activation: &activationCommand{access: access, words: words, choices: choices, notes: notes, signs: c.signs, metrics: c.metrics, log: log},
		notes:      notes, signs: c.signs, recent: recent, limits: newUserLimits(c.cfg.UserRate), fileBytes: newUserLimits(c.cfg.UserFileBytes), receiver: c.receiving, metrics: c.metrics, log: log,
	}}
}

// Name returns `telegram:<bot id>`, which is also the name of the lease.
func (c *Channel) Name() string { return c.identity.name }

// Username returns the bot's user name without @, "" until Telegram has returned it.
func (c *Channel) Username() string { return c.identity.username() }

// Run passes messages to the receiver until ctx is done. It owns the poll loop, the goroutines of
// the intake and those of the previews; all of them have ended when it returns. A failure of
// Telegram, the network or the store does not end it. A concurrent second Run is an error.
func (c *Channel) Run(ctx context.Context, receiver channel.Receiver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.begin(receiver); err != nil {
		return err
	}
	c.intake.open(ctx)
	c.previews.open(ctx)
	if c.cfg.Access == AccessOpen {
		c.log.WarnContext(ctx, "every Telegram user may talk to this bot")
	}
	p := &poller{cfg: pollerConfig{
		name: c.identity.name, timeout: c.cfg.PollTimeout, webhookURL: c.cfg.WebhookURL, webhookSecret: c.cfg.WebhookSecret, commands: c.commands,
	}, api: c.api, identity: c.identity, intake: c.intake, conn: c.conn, log: c.log}
	if c.cfg.Mode == ModeWebhook {
		p.serveWebhook(ctx, receiver)
	} else {
		p.lease = receiver
		p.poll(ctx)
	}
	cancel()
	c.intake.close()
	c.notes.close()
	c.previews.close()
	c.end()
	return nil
}

// errRunning means that Run is already running.
var errRunning = errors.New("telegram: the channel runs already")

func (c *Channel) begin(receiver channel.Receiver) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiver != nil {
		return errRunning
	}
	c.receiver = receiver
	c.conn.begin()
	return nil
}

func (c *Channel) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiver = nil
	c.conn.end()
}

// receiving returns the receiver of messages, nil while the channel does not run.
func (c *Channel) receiving() channel.Receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.receiver
}

// alive returns nil while this process may show previews.
func (c *Channel) alive() error {
	receiver := c.receiving()
	if receiver == nil {
		return errNotRunning
	}
	return receiver.Alive()
}

// Status implements [channel.Channel].
func (c *Channel) Status() channel.Status {
	return c.conn.status(channel.Status{Account: c.cfg.Account, Label: "Telegram", Configured: true, Mode: c.cfg.Mode})
}

// Send delivers one reply in as many messages as it needs. A further attempt, by any process,
// continues after the messages that were recorded. The same notice is sent at most once a minute to
// one place.
func (c *Channel) Send(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	return c.sender.send(ctx, r, claim)
}

// Ask implements [channel.Asker]: the keyboard is under the last message of the reply.
func (c *Channel) Ask(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	return c.sender.ask(ctx, r, claim)
}

// Conversation implements [channel.Converser]: the session of the next message there, see
// [sessionOf].
func (c *Channel) Conversation(at chat.Target) (key chat.SessionKey, principal string, err error) {
	to, err := c.addresses.address(at)
	if err != nil {
		return key, "", err
	}
	if !to.group() {
		principal = c.identity.name + ":" + number(to.chat)
	}
	return sessionOf(c.cfg.Agent, to), principal, nil
}

// Arrived implements [channel.Converser].
func (c *Channel) Arrived(r chat.Reply) (text string, at chat.Target) {
	done, err := progressOf(r.Progress)
	if err != nil || done.First == "" {
		return "", at
	}
	return c.Shows(r.Text, 0, done.UpTo), c.addresses.arrived(done)
}

// Shows implements [channel.Converser]. The bounds are bytes of the document.
func (*Channel) Shows(text string, from, to int) string {
	whole := render(text).text
	to = min(to, len(whole))
	return strings.TrimSpace(whole[min(from, to):to])
}

// SendFile implements [channel.Filer]. Telegram inspects pictures and voices and refuses some;
// those are sent as documents.
func (c *Channel) SendFile(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	return c.sender.sendFile(ctx, r, claim)
}

// Typing implements [channel.Typer]; the indicator lasts about five seconds.
func (c *Channel) Typing(ctx context.Context, target chat.Target) {
	if to, err := c.addresses.address(target); err == nil {
		c.signs.typing(ctx, to)
	}
}

// Queued implements [channel.Queuer] with a reaction. A message that came through another node, or
// long ago, receives none.
func (c *Channel) Queued(ctx context.Context, _ chat.Target, messageID string) {
	c.signs.queued(ctx, messageID)
}

// Update implements [channel.Streamer]: the state is shown within the next second.
func (c *Channel) Update(target chat.Target, runID string, p channel.Preview) {
	if to, err := c.addresses.address(target); err == nil {
		c.previews.update(to, runID, p)
	}
}

// Close implements [channel.Streamer].
func (c *Channel) Close(ctx context.Context, _ chat.Target, runID string) (shown string, own bool) {
	return c.previews.closeOne(ctx, runID)
}

// Finish implements [channel.Streamer]. The shown text stays until the final text replaces it.
func (c *Channel) Finish(_ chat.Target, runID string, replaced bool) {
	c.previews.finish(runID, replaced)
}

// EndPreviews implements [channel.Streamer].
func (c *Channel) EndPreviews(ctx context.Context) { c.previews.endAll(ctx) }

// WebhookHandler handles Telegram's deliveries; the gateway mounts it at
// /telegram/webhook/{account}. It answers 401 before it reads the body when the secret is wrong,
// 413 above 1 MiB, 400 when the body is not an update, 503 while the message cannot be stored, and
// 200 only when the message is durable or the update has no message. In polling mode it answers
// every request with 404.
func (c *Channel) WebhookHandler() http.Handler {
	return &deliveries{
		enabled: c.cfg.Mode == ModeWebhook, want: sha256.Sum256([]byte(c.cfg.WebhookSecret)), intake: c.intake, metrics: c.metrics,
	}
}

// States of [channel.Status].
const (
	stateStopped   = "stopped"
	stateConnected = "connected"
	stateDegraded  = "degraded"
	stateConflict  = "conflict"
	stateStandby   = "standby"
	stateDisabled  = "disabled"
)

// connection is the state of the connection to Telegram. The poller writes it, Status and the
// senders read it. It is safe for concurrent use.
type connection struct {
	log *slog.Logger
	// overdue is how long a poll may go without an answer before the connection counts as degraded;
	// 0 means the channel does not poll.
	overdue time.Duration

	mu       sync.Mutex
	running  bool
	state    string
	lastErr  string
	polled   time.Time // the last completed getUpdates
	down     bool      // the last getUpdates did not reach Telegram
	diskFull bool      // the last attachment could not be saved
}

// begin and end mark the start and the end of Run.
func (c *connection) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.state = true, stateDegraded
}

func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.state, c.down = false, stateStopped, false
}

// set records the state with a sentence about its reason. A change is logged once.
func (c *connection) set(ctx context.Context, state, why string) {
	c.mu.Lock()
	before := c.state
	c.state, c.lastErr = state, why
	c.mu.Unlock()
	if before != state {
		c.log.InfoContext(ctx, "the state of the channel changed", "from", before, "to", state, "why", why)
	}
}

// answered records a completed poll. Only a poll proves that Telegram can be reached: it may be
// repeated without harm.
func (c *connection) answered(ctx context.Context) {
	c.set(ctx, stateConnected, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polled, c.down = time.Now(), false
}

// setDown records whether polls fail to reach Telegram.
func (c *connection) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// setDiskFull records whether the last attachment could not be saved.
func (c *connection) setDiskFull(full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diskFull = full
}

// patience bounds one call that sends a message. While Telegram cannot be reached the bound is
// short: a call that hangs would delay its message after the network has recovered.
func (c *connection) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return 2 * probeTime
	}
	return callTime
}

// status fills in the state of the connection. A connection whose poll is overdue is degraded, even
// before the poll has failed.
func (c *connection) status(s channel.Status) channel.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Running, s.State, s.LastError, s.Down, s.LastPollAge = c.running, c.state, c.lastErr, c.down, -1
	if !c.polled.IsZero() {
		s.LastPollAge = time.Since(c.polled)
	}
	if s.State == stateConnected && c.overdue > 0 && s.LastPollAge > c.overdue {
		s.State, s.LastError = stateDegraded, "Telegram has not answered for a while"
	}
	if s.State == stateConnected && c.diskFull {
		s.State, s.LastError = stateDegraded, errDisk.Error()
	}
	s.Connected = s.State == stateConnected
	return s
}

// identity has the id and the names of the bot. It is safe for concurrent use.
type identity struct {
	bot  int64  // Telegram's id of the bot
	name string // of the channel: `telegram:<bot id>`
	// user is the user name without @; nil until getMe has been answered.
	user atomic.Pointer[string]
}

// username returns the bot's user name without @, "" until Telegram has answered getMe.
func (i *identity) username() string {
	if p := i.user.Load(); p != nil {
		return *p
	}
	return ""
}

// peer returns a person in a chat of this bot.
func (i *identity) peer(userID, chatID int64) channel.Peer {
	return channel.Peer{Channel: i.name, UserID: userID, ChatID: chatID}
}
