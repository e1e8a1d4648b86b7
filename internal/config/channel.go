package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"

	"laneway/internal/secret"
)

// Channels connect people with the agents.
type Channels struct {
	Web      WebChannel `yaml:"web"`
	Telegram Telegram   `yaml:"telegram"`
}

// WebChannel is the channel of the gateway's own socket.
type WebChannel struct {
	// DebounceMs is short for queue.debounce_ms. Default 0, because a program or a browser sends a
	// message in one piece.
	DebounceMs *int          `yaml:"debounce_ms"`
	Queue      QueueOverride `yaml:"queue"`
}

// Telegram is one bot, and with Accounts additional ones. A bot exists when it has a token.
type Telegram struct {
	// Token is the token of the bot. TokenEnv or TokenFile name a variable or file that has it.
	// Without these and without accounts, laneway takes the variable TELEGRAM_TOKEN.
	Token     secret.Secret `yaml:"token"`
	TokenEnv  string        `yaml:"token_env"`
	TokenFile string        `yaml:"token_file"`
	// Enabled turns the bot on. Default on. When it is off, its settings are kept.
	Enabled bool `yaml:"enabled"`
	// Account names the bot in paths and lists. Default `default`; the key for a bot of Accounts.
	Account string `yaml:"account"`
	// Accounts are additional bots by name, with the settings of this one except account, accounts,
	// queue and debounce_ms.
	Accounts map[string]Telegram `yaml:"accounts"`
	// Mode is polling or webhook. Default polling.
	Mode string `yaml:"mode"`
	// APIURL is the address of the Bot API. Default https://api.telegram.org.
	APIURL string `yaml:"api_url"`
	// FilesDir is the directory of a Bot API server in local mode, from which files of messages are
	// read. Default: files are downloaded.
	FilesDir string `yaml:"files_dir"`
	// WebhookURL is the public address that Telegram calls. WebhookSecret authenticates Telegram,
	// 32 characters or more.
	WebhookURL        string        `yaml:"webhook_url"`
	WebhookSecret     secret.Secret `yaml:"webhook_secret"`
	WebhookSecretEnv  string        `yaml:"webhook_secret_env"`
	WebhookSecretFile string        `yaml:"webhook_secret_file"`
	// Access is pairing, allowlist, open or disabled. Default pairing.
	Access string `yaml:"access"`
	// Allow are the users who may send messages, by numeric id, such as 123456789. Default: none.
	Allow []ID `yaml:"allow"`
	// Groups are the groups in which the bot answers, by numeric id, such as -1001234567890.
	// Default: none.
	Groups []ID `yaml:"groups"`
	// Members is who may send messages in a listed group: listed (those in Allow) or any. Default
	// listed.
	Members string `yaml:"members"`
	// Activation is when the bot answers in a group: mention (or a reply to it) or always. Default
	// mention.
	Activation string `yaml:"activation"`
	// GroupStop is who may stop a turn in a group: anyone, own or admins. Default anyone.
	GroupStop string `yaml:"group_stop"`
	// Agent is the agent that answers. Default: the default agent.
	Agent string `yaml:"agent"`
	// PollTimeout is how long one long poll lasts, 1s to 50s. Default 30s.
	PollTimeout Duration `yaml:"poll_timeout"`
	// MaxAttachment is the largest attachment in bytes, 0 to 20971520, the limit of the Bot API.
	// Default 20971520. 0 = no attachments.
	MaxAttachment int `yaml:"max_attachment"`
	// DebounceMs is short for queue.debounce_ms.
	DebounceMs *int          `yaml:"debounce_ms"`
	Queue      QueueOverride `yaml:"queue"`
}

// Configured reports whether the bot has a token and is enabled.
func (t Telegram) Configured() bool { return t.Enabled && t.Token.IsSet() }

// Bots returns the configured bots, the unnamed one first, then by name.
func (t Telegram) Bots() []Telegram {
	var bots []Telegram
	if t.Configured() {
		bots = append(bots, t)
	}
	for _, name := range sortedNames(t.Accounts) {
		if a := t.Accounts[name]; a.Configured() {
			bots = append(bots, a)
		}
	}
	return bots
}

func (c Channels) queueOf(channel string) QueueOverride {
	switch channel {
	case "web":
		return withShortDebounce(c.Web.Queue, c.Web.DebounceMs)
	case "telegram":
		return withShortDebounce(c.Telegram.Queue, c.Telegram.DebounceMs)
	default:
		return QueueOverride{}
	}
}

func withShortDebounce(o QueueOverride, short *int) QueueOverride {
	if o.DebounceMs == nil {
		o.DebounceMs = short
	}
	return o
}

// telegramMaxFile is the largest file that the Bot API serves.
const telegramMaxFile = 20 << 20

func (c Channels) validate(a at, global Queue) {
	web := a.key("web")
	checkShortDebounce(web, c.Web.Queue, c.Web.DebounceMs)
	c.queueOf("web").apply(global).validate(web.key("queue"))

	tg := a.key("telegram")
	checkShortDebounce(tg, c.Telegram.Queue, c.Telegram.DebounceMs)
	c.queueOf("telegram").apply(global).validate(tg.key("queue"))
	c.Telegram.validate(tg)
	for _, name := range sortedNames(c.Telegram.Accounts) {
		c.Telegram.Accounts[name].validateAccount(tg.key("accounts").key(name), name, c.Telegram)
	}
}

// validateAccount checks an additional bot of a main one.
func (t Telegram) validateAccount(a at, name string, lead Telegram) {
	t.validate(a)
	for _, foreign := range []struct {
		key   string
		given bool
	}{
		{"account", t.Account != name}, {"accounts", len(t.Accounts) > 0}, {"debounce_ms", t.DebounceMs != nil}, {"queue", t.Queue != QueueOverride{}},
	} {
		if foreign.given {
			a.key(foreign.key).addf("belongs to channels.telegram; it is the same for all bots")
		}
	}
	if lead.Configured() && name == lead.Account {
		a.addf("is the name of the first bot too; rename one")
	}
}

func checkShortDebounce(a at, o QueueOverride, short *int) {
	if short != nil && o.DebounceMs != nil && *short != *o.DebounceMs {
		a.key("debounce_ms").addf("is %d, but queue.debounce_ms is %d; keep one of them", *short, *o.DebounceMs)
	}
}

func (t Telegram) validate(a at) {
	a.oneOf("mode", t.Mode, "polling", "webhook")
	a.oneOf("access", t.Access, "pairing", "allowlist", "open", "disabled")
	a.oneOf("members", t.Members, "listed", "any")
	a.oneOf("activation", t.Activation, "mention", "always")
	a.oneOf("group_stop", t.GroupStop, "anyone", "own", "admins")
	a.between("max_attachment", t.MaxAttachment, 0, telegramMaxFile)
	a.durationBetween("poll_timeout", t.PollTimeout, Duration(second), 50*Duration(second))
	checkHTTPURL(a.key("api_url"), t.APIURL)
	if t.FilesDir != "" && !filepath.IsAbs(t.FilesDir) {
		a.key("files_dir").addf("must be an absolute path, is %q", t.FilesDir)
	}
	if !validName(t.Account) {
		a.key("account").addf("must be lower-case letters, digits and dashes, is %q", t.Account)
	}
	if t.Mode != "webhook" || !t.Enabled {
		return
	}
	if t.WebhookURL == "" {
		a.key("webhook_url").addf("is needed for mode webhook")
	} else {
		checkHTTPURL(a.key("webhook_url"), t.WebhookURL)
	}
}

func checkHTTPURL(a at, raw string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		a.addf("must be an address such as https://example.org")
	case u.User != nil:
		a.addf("must not carry a user or a password")
	}
}

// needsSecret is the error for a short secret with which a caller authenticates to the gateway.
func needsSecret(path string) string { return fmt.Sprintf("%s needs %d characters", path, minSecret) }

// Queue are the rules for waiting messages of one session. A zero field does not mean its default:
// [Default] fills in the defaults.
type Queue struct {
	// Mode is queue, followup, interrupt, collect or steer. Default queue.
	Mode string `yaml:"mode"`
	// Cap is how many turns may wait, 1 to 10000, beside the one that runs or is next. Default 10.
	Cap int `yaml:"cap"`
	// Drop is the message to remove when the queue is full: old or new. Default old.
	Drop string `yaml:"drop"`
	// DebounceMs is how long the sender must be quiet before messages become a turn, 0 to 60000
	// milliseconds. Default 800. 0 = no debounce.
	DebounceMs int `yaml:"debounce_ms"`
	// DebounceMaxMs is the longest time in milliseconds for which the first message is held, at
	// least DebounceMs. Default 0 = three times DebounceMs.
	DebounceMaxMs int `yaml:"debounce_max_ms"`
	// DebounceMaxMessages and DebounceMaxBytes limit a batch. Defaults 12 and 50000.
	DebounceMaxMessages int `yaml:"debounce_max_messages"`
	DebounceMaxBytes    int `yaml:"debounce_max_bytes"`
	// MaxConcurrent is how many turns of one session run at once, 1 to 1000. Default 1.
	MaxConcurrent int `yaml:"max_concurrent"`
	// GroupMaxConcurrent is the same for sessions of groups. Default 3.
	GroupMaxConcurrent int `yaml:"group_max_concurrent"`
	// ThrottlePercent is the part of the context window above which a session runs one turn at a
	// time, 1 to 100. Default 60.
	ThrottlePercent int `yaml:"throttle_percent"`
}

// QueueOverride changes some settings of [Queue] for one agent or one channel. A missing field
// keeps the outer value.
type QueueOverride struct {
	// Each of these replaces the setting of the same name below queue, for this agent or channel.
	// What you leave out stays as it is there.
	Mode                *string `yaml:"mode"`
	Cap                 *int    `yaml:"cap"`
	Drop                *string `yaml:"drop"`
	DebounceMs          *int    `yaml:"debounce_ms"`
	DebounceMaxMs       *int    `yaml:"debounce_max_ms"`
	DebounceMaxMessages *int    `yaml:"debounce_max_messages"`
	DebounceMaxBytes    *int    `yaml:"debounce_max_bytes"`
	MaxConcurrent       *int    `yaml:"max_concurrent"`
	GroupMaxConcurrent  *int    `yaml:"group_max_concurrent"`
	ThrottlePercent     *int    `yaml:"throttle_percent"`
}

// Apply returns q with the changes of o. In the result, DebounceMaxMs is filled in.
func (o QueueOverride) Apply(q Queue) Queue {
	q = o.apply(q)
	q.DebounceMaxMs = cmp.Or(q.DebounceMaxMs, 3*q.DebounceMs)
	return q
}

func (o QueueOverride) apply(q Queue) Queue {
	if o.DebounceMs != nil && o.DebounceMaxMs == nil {
		q.DebounceMaxMs = 0 // it follows from the new DebounceMs
	}
	set(&q.Mode, o.Mode)
	set(&q.Cap, o.Cap)
	set(&q.Drop, o.Drop)
	set(&q.DebounceMs, o.DebounceMs)
	set(&q.DebounceMaxMs, o.DebounceMaxMs)
	set(&q.DebounceMaxMessages, o.DebounceMaxMessages)
	set(&q.DebounceMaxBytes, o.DebounceMaxBytes)
	set(&q.MaxConcurrent, o.MaxConcurrent)
	set(&q.GroupMaxConcurrent, o.GroupMaxConcurrent)
	set(&q.ThrottlePercent, o.ThrottlePercent)
	return q
}

func set[T any](target *T, value *T) {
	if value != nil {
		*target = *value
	}
}

// QueueFor returns the queue settings for a session of this agent on this channel: the global
// settings, overridden by the channel's and then by the agent's, because an agent is more specific.
// An agent or channel that is not configured changes nothing.
func (c Config) QueueFor(agent, channel string) Queue {
	q := c.Channels.queueOf(channel).apply(c.Queue)
	return c.Agents[agent].Queue.Apply(q)
}

// maxDebounceMs is a minute: a person who pauses longer has stopped typing.
const maxDebounceMs = 60_000

func (q Queue) validate(a at) {
	a.oneOf("mode", q.Mode, "queue", "followup", "interrupt", "collect", "steer")
	a.between("cap", q.Cap, 1, 10_000)
	a.oneOf("drop", q.Drop, "old", "new")
	a.between("debounce_ms", q.DebounceMs, 0, maxDebounceMs)
	a.between("debounce_max_ms", q.DebounceMaxMs, 0, 10*maxDebounceMs)
	if q.DebounceMaxMs != 0 && q.DebounceMaxMs < q.DebounceMs {
		a.key("debounce_max_ms").addf("must not be shorter than debounce_ms (%d), is %d", q.DebounceMs, q.DebounceMaxMs)
	}
	a.between("debounce_max_messages", q.DebounceMaxMessages, 1, 1_000)
	a.between("debounce_max_bytes", q.DebounceMaxBytes, 1, 262_144)
	a.between("max_concurrent", q.MaxConcurrent, 1, 1_000)
	a.between("group_max_concurrent", q.GroupMaxConcurrent, 1, 1_000)
	a.between("throttle_percent", q.ThrottlePercent, 1, 100)
}

// Lanes are how many turns run at once in each lane, at least 1. Defaults 30, 50, 100, 30.
type Lanes struct {
	Main     int `yaml:"main"`
	Subagent int `yaml:"subagent"`
	Team     int `yaml:"team"`
	Cron     int `yaml:"cron"`
}

// Map returns the lanes by name.
func (l Lanes) Map() map[string]int {
	return map[string]int{"main": l.Main, "subagent": l.Subagent, "team": l.Team, "cron": l.Cron}
}

func (l Lanes) validate(a at) {
	limits := l.Map()
	for _, name := range sortedNames(limits) {
		if limits[name] < 1 {
			a.key(name).addf("must be a positive whole number, is %d", limits[name])
		}
	}
}
