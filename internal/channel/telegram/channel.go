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
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Channel is one bot. Make it with New. It is safe for concurrent use.
//
// It has the life cycle and the interfaces of package channel; its parts do the work. Updates pass through poller or deliveries → intake →
// inbound → receiver, replies through sender → poster → client. No lock of one part is held while another part is called, except that mu
// is held while the connection is set to its first or last state.
type Channel struct {
	cfg       Config
	identity  *identity
	addresses *addresses
	conn      *connection
	api       *client
	commands  []chat.CommandInfo
	obs       Observer
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

// New makes a channel of a valid configuration. It makes no call: Run handles a network that is down at the start.
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
		cfg: cfg, identity: &identity{bot: bot, name: name}, commands: deps.Commands, obs: deps.Observer, log: deps.Logger,
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
	limits, recent, log := newLimiter(), newRecentMessages(), c.log
	c.api = &client{base: c.cfg.APIURL, token: c.cfg.Token, transport: deps.Transport, obs: c.obs, limits: limits}
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
	c.intake = &intake{obs: c.obs, log: log, clean: c.api.clean, handler: &inbound{
		cfg:      inboundConfig{agent: c.cfg.Agent, groupStop: c.cfg.GroupStop, userRate: c.cfg.UserRate, userFileBytes: c.cfg.UserFileBytes},
		identity: c.identity, addresses: c.addresses, access: access, words: words, files: files, choices: choices,
		greeter: &greeter{
			allowlist: c.cfg.Access == AccessAllowlist, identity: c.identity, records: deps.Records, notes: notes, obs: c.obs, log: log,
			sent: newTTLMap(greetEvery), unsent: newTTLMap(greetingLife),
		},
		activation: &activationCommand{access: access, words: words, choices: choices, notes: notes, signs: c.signs, obs: c.obs, log: log},
		notes:      notes, signs: c.signs, recent: recent, limits: newUserLimits(c.cfg.UserRate), fileBytes: newUserLimits(c.cfg.UserFileBytes), receiver: c.receiving, obs: c.obs, log: log,
	}}
}

// Name returns `telegram:<bot id>`, which is also the name of the lease.
func (c *Channel) Name() string { return c.identity.name }

// Username returns the bot's user name without @, "" until Telegram has returned it.
func (c *Channel) Username() string { return c.identity.username() }

// Run passes messages to the receiver until ctx is done. It owns the poll loop, the goroutines of the intake and those of the previews; all of them
// have ended when it returns. A failure of Telegram, the network or the store does not end it. A concurrent second Run is an error.
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

// Send delivers one reply in as many messages as it needs. A further attempt, by any process, continues after the messages that were recorded. The
// same notice is sent at most once a minute to one place.
func (c *Channel) Send(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	return c.sender.send(ctx, r, claim)
}

// Ask implements [channel.Asker]: the keyboard is under the last message of the reply.
func (c *Channel) Ask(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	return c.sender.ask(ctx, r, claim)
}

// Conversation implements [channel.Converser]: the session of the next message there, see [sessionOf].
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
func (*Channel) Arrived(r chat.Reply) string {
	done, err := progressOf(r.Progress)
	if err != nil || done.First == "" {
		return ""
	}
	d := render(r.Text)
	return strings.TrimSpace(d.text[:min(done.UpTo, len(d.text))])
}

// SendFile implements [channel.Filer]. Telegram inspects pictures and voices and refuses some; those are sent as documents.
func (c *Channel) SendFile(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	return c.sender.sendFile(ctx, r, claim)
}

// Typing implements [channel.Typer]; the indicator lasts about five seconds.
func (c *Channel) Typing(ctx context.Context, target chat.Target) {
	if to, err := c.addresses.address(target); err == nil {
		c.signs.typing(ctx, to)
	}
}

// Queued implements [channel.Queuer] with a reaction. A message that came through another node, or long ago, receives none.
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

// WebhookHandler handles Telegram's deliveries; the gateway mounts it at /telegram/webhook/{account}. It answers 401 before it reads the body
// when the secret is wrong, 413 above 1 MiB, 400 when the body is not an update, 503 while the message cannot be stored, and 200 only when
// the message is durable or the update has no message. In polling mode it answers every request with 404.
func (c *Channel) WebhookHandler() http.Handler {
	return &deliveries{
		enabled: c.cfg.Mode == ModeWebhook, want: sha256.Sum256([]byte(c.cfg.WebhookSecret)), intake: c.intake, obs: c.obs,
	}
}
