package telegram

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Channel is one bot. Make it with New. It is safe for concurrent use.
type Channel struct {
	cfg      Config
	bot      int64
	name     string
	api      *client
	records  channel.Records
	files    *attachments
	root     *os.Root // of all files; nil = none can be sent
	commands []chat.CommandInfo
	words    map[string]bool // names and aliases of the commands; true = urgent
	obs      Observer
	log      *slog.Logger

	limits   *limiter
	told     *once
	untold   *once // greetings that did not get through, as long as their code is good
	errors   *once
	spam     *userLimits
	sent     *progress
	recent   *recent
	previews *previews
	intake   *intake
	me       atomic.Pointer[string] // user name of the bot; nil until getMe has answered
	drafts   atomic.Bool            // the API is thought to have drafts
	diskFull atomic.Bool            // the last attachment could not be saved

	mu       sync.Mutex
	state    string
	lastErr  string
	polled   time.Time          // last completed getUpdates
	down     bool               // the last getUpdates found nobody
	receiver channel.Receiver   // while Run is on
	lifetime context.CancelFunc // ends what runs beside the loop
	moved    map[int64]int64    // groups that became other ones
}

var (
	_ channel.Channel  = (*Channel)(nil)
	_ channel.Typer    = (*Channel)(nil)
	_ channel.Streamer = (*Channel)(nil)
	_ channel.Queuer   = (*Channel)(nil)
	_ channel.Asker    = (*Channel)(nil)
	_ channel.Filer    = (*Channel)(nil)
)

// States of [channel.Status].
const (
	stateStopped   = "stopped"
	stateConnected = "connected"
	stateDegraded  = "degraded"
	stateConflict  = "conflict"
	stateStandby   = "standby"
	stateDisabled  = "disabled"
)

// New makes a channel of a configuration that can work. It makes no call: a network that is down at the start is Run's business.
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
		return nil, errors.New("telegram: there is no place for what the channel keeps")
	}
	c := &Channel{
		cfg: cfg, bot: bot, name: "telegram:" + strconv.FormatInt(bot, 10), records: deps.Records, commands: deps.Commands, words: map[string]bool{}, obs: deps.Observer, log: deps.Logger,
		limits: newLimiter(), told: newOnce(time.Minute), untold: newOnce(50 * time.Minute), errors: newOnce(time.Minute), spam: newUserLimits(cfg.UserRate),
		sent: newProgress(), recent: newRecent(), state: stateStopped, moved: map[int64]int64{},
	}
	c.fill(deps)
	for _, cmd := range deps.Commands {
		for _, word := range append([]string{cmd.Name}, cmd.Aliases...) {
			c.words[word] = cmd.Urgent
		}
	}
	c.intake = newIntake(c)
	c.previews = newPreviews(c)
	c.drafts.Store(true)
	return c, nil
}

// fill puts in what was left out.
func (c *Channel) fill(deps Deps) {
	if c.obs == nil {
		c.obs = NopObserver{}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("channel", c.name)
	transport := deps.Transport
	if transport == nil {
		transport = newTransport()
	}
	c.api = &client{base: c.cfg.APIURL, token: c.cfg.Token, transport: transport, obs: c.obs, limits: c.limits}
	c.root = deps.Files
	if deps.Files != nil && c.cfg.MaxAttachment > 0 {
		c.files = &attachments{root: deps.Files, dir: "telegram-" + strconv.FormatInt(c.bot, 10), limit: c.cfg.MaxAttachment, api: c.api}
	}
}

// Name is `telegram:<bot id>`; it is also the name of the lease.
func (c *Channel) Name() string { return c.name }

// Username is the bot's name without @, "" until Telegram has told it.
func (c *Channel) Username() string {
	if p := c.me.Load(); p != nil {
		return *p
	}
	return ""
}

// Run brings messages in until ctx is over. It owns the poll loop, one goroutine for each chat that has something to be read, and one for
// each answer that is being streamed; all of them have ended when it returns. No failure of Telegram, the network or the store ends it.
func (c *Channel) Run(ctx context.Context, receiver channel.Receiver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.begin(receiver, cancel); err != nil {
		return err
	}
	c.intake.open(ctx)
	c.previews.open(ctx)
	if c.cfg.Access == AccessOpen {
		c.log.WarnContext(ctx, "everybody may talk to this bot")
	}
	if c.cfg.Mode == ModeWebhook {
		c.serveWebhook(ctx)
	} else {
		c.poll(ctx, receiver)
	}
	cancel()
	c.intake.close()
	c.previews.close()
	c.end()
	return nil
}

// errRunning: one Run at a time.
var errRunning = errors.New("telegram: the channel runs already")

func (c *Channel) begin(receiver channel.Receiver, cancel context.CancelFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiver != nil {
		return errRunning
	}
	c.receiver, c.lifetime, c.state = receiver, cancel, stateDegraded
	return nil
}

func (c *Channel) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiver, c.lifetime, c.state, c.down = nil, nil, stateStopped, false
}

// receiving is the receiver of messages, nil while the channel does not run.
func (c *Channel) receiving() channel.Receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.receiver
}

// stand records how the connection is. A change is logged once.
func (c *Channel) stand(ctx context.Context, state, why string) {
	c.mu.Lock()
	before := c.state
	c.state, c.lastErr = state, why
	c.mu.Unlock()
	if before != state {
		c.log.InfoContext(ctx, "the state of the channel changed", "from", before, "to", state, "why", why)
	}
}

// setDown records whether polls find Telegram.
func (c *Channel) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// patience is how long a message may be under way. While nobody is there, one that hangs would be late when somebody is again.
func (c *Channel) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return 2 * probeTime
	}
	return callTime
}

// Status is a picture for people. A poll that has not come back in its time is a degraded connection even while nobody has noticed.
func (c *Channel) Status() channel.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := channel.Status{
		Account: c.cfg.Account, Label: "Telegram", Configured: true, Running: c.receiver != nil, State: c.state, LastError: c.lastErr, Mode: c.cfg.Mode, LastPollAge: -1,
		Down: c.down,
	}
	if !c.polled.IsZero() {
		s.LastPollAge = time.Since(c.polled)
	}
	if c.state == stateConnected && c.cfg.Mode == ModePolling && s.LastPollAge > c.cfg.PollTimeout+2*pollGrace {
		s.State, s.LastError = stateDegraded, "Telegram has not answered for a while"
	}
	if s.State == stateConnected && c.diskFull.Load() {
		s.State, s.LastError = stateDegraded, errDisk.Error()
	}
	s.Connected = s.State == stateConnected
	return s
}

// target reads an address of this bot.
func (c *Channel) target(to chat.Target) (address, error) {
	if to.Channel != c.name {
		return address{}, fmt.Errorf("%q is not the channel %s", to.Channel, c.name)
	}
	id, err := strconv.ParseInt(to.ChatID, 10, 64)
	if err != nil || id == 0 {
		return address{}, fmt.Errorf("%q is not the id of a chat", chat.Cut(to.ChatID, 40))
	}
	a := address{chat: c.follow(id)}
	if to.Thread != "" {
		if a.thread, err = strconv.Atoi(to.Thread); err != nil || a.thread < 0 {
			return address{}, fmt.Errorf("%q is not the id of a topic", chat.Cut(to.Thread, 40))
		}
	}
	if a.thread == general {
		a.thread = 0
	}
	return a, nil
}

// general is the topic of a forum that is named by leaving the topic out.
const general = 1

// address is a chat and a topic of it; 0 = none.
type address struct {
	chat   int64
	thread int
}

func (a address) group() bool { return a.chat < 0 }

// target is the address as the rest of the house writes it.
func (c *Channel) targetOf(a address) chat.Target {
	t := chat.Target{Channel: c.name, ChatID: strconv.FormatInt(a.chat, 10)}
	if a.thread != 0 {
		t.Thread = strconv.Itoa(a.thread)
	}
	return t
}

// follow is the chat that a group has become.
func (c *Channel) follow(id int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 4 { // a chain is possible, a ring is not to be trusted
		next, ok := c.moved[id]
		if !ok {
			break
		}
		id = next
	}
	return id
}

// migrate remembers that a group has a new number. An error means that the store does not know it yet, and so neither does the channel: the update, or
// the next message to the old number, shows it again.
func (c *Channel) migrate(ctx context.Context, from, to int64) error {
	if from == 0 || to == 0 || from == to {
		return nil
	}
	c.mu.Lock()
	known := c.moved[from] == to
	c.mu.Unlock()
	if known {
		return nil
	}
	if err := c.records.MoveGroup(ctx, c.name, from, to); err != nil {
		return fmt.Errorf("keeping the new id of a group: %w", err)
	}
	c.log.WarnContext(ctx, "a group became a supergroup; put the new id into the list of groups", "old_chat", from, "new_chat", to)
	c.mu.Lock()
	c.moved[from] = to
	c.mu.Unlock()
	return nil
}
