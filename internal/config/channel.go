package config

import (
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
	// DebounceMs is short for queue.debounce_ms. Default 0, because a program or a browser sends a message in one piece.
	DebounceMs *int          `yaml:"debounce_ms"`
	Queue      QueueOverride `yaml:"queue"`
}

// Telegram is one bot, and with Accounts additional ones. A bot exists when it has a token.
type Telegram struct { //nolint:recvcheck // the decoder gives a new entry its defaults through a pointer
	// Token of the bot. TokenEnv or TokenFile name a variable or file that has it. When none of the three is given and there are no
	// accounts, the variable TELEGRAM_TOKEN has it.
	Token     secret.Secret `yaml:"token"`
	TokenEnv  string        `yaml:"token_env"`
	TokenFile string        `yaml:"token_file"`
	// Enabled turns the bot on; when it is off, its settings are kept. Default on.
	Enabled bool `yaml:"enabled"`
	// Account names the bot in paths and lists. Default `default`; the key for a bot of Accounts.
	Account string `yaml:"account"`
	// Accounts are additional bots by name, with the settings of this one except account, accounts, queue and debounce_ms.
	Accounts map[string]Telegram `yaml:"accounts"`
	// Mode is polling or webhook. Default polling.
	Mode string `yaml:"mode"`
	// APIURL is the address of the Bot API. Default https://api.telegram.org.
	APIURL string `yaml:"api_url"`
	// FilesDir is the directory of a Bot API server in local mode, from which files of messages are read. Default: files are downloaded.
	FilesDir string `yaml:"files_dir"`
	// WebhookURL is the public address that Telegram calls. WebhookSecret authenticates Telegram, 32 characters or more.
	WebhookURL        string        `yaml:"webhook_url"`
	WebhookSecret     secret.Secret `yaml:"webhook_secret"`
	WebhookSecretEnv  string        `yaml:"webhook_secret_env"`
	WebhookSecretFile string        `yaml:"webhook_secret_file"`
	// Access is pairing, allowlist, open or disabled. Default pairing.
	Access string `yaml:"access"`
	// Allow are the people who may send messages, by numeric id. With an empty list, no person may.
	Allow []ID `yaml:"allow"`
	// Groups are the group chats in which the bot answers, by numeric id. With an empty list, it answers in no group.
	Groups []ID `yaml:"groups"`
	// Members may send messages in a listed group: listed (those in Allow) or any. Default listed.
	Members string `yaml:"members"`
	// Activation in groups: mention (or reply) or always. Default mention.
	Activation string `yaml:"activation"`
	// GroupStop is who may stop a turn in a group: anyone, own or admins. Default anyone.
	GroupStop string `yaml:"group_stop"`
	// Agent that answers. Default: the default agent.
	Agent string `yaml:"agent"`
	// PollTimeout of one long poll, 1s to 50s. Default 30s.
	PollTimeout Duration `yaml:"poll_timeout"`
	// MaxAttachment in bytes, 0 to 20971520, the limit of the Bot API. Default 20971520. 0 = no attachments.
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
