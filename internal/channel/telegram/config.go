package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/metrics"
)

// Modes of receiving updates.
const (
	ModePolling = "polling"
	ModeWebhook = "webhook"
)

// Access policies.
const (
	AccessPairing   = "pairing"
	AccessAllowlist = "allowlist"
	AccessOpen      = "open"
	AccessDisabled  = "disabled"
)

// Who may talk in a listed group, which messages the bot answers there, and who may stop a turn
// there.
const (
	MembersListed = "listed"
	MembersAny    = "any"

	ActivationMention = "mention"
	ActivationAlways  = "always"

	StopAnyone = "anyone"
	StopOwn    = "own"
	StopAdmins = "admins"
)

// Bounds and defaults.
const (
	DefaultAPIURL      = "https://api.telegram.org"
	DefaultPollTimeout = 30 * time.Second
	// MaxAttachment is the largest file that the Bot API serves, in bytes.
	MaxAttachment = 20 << 20
	// DefaultUserRate is how many messages a minute one person may send.
	DefaultUserRate = 20
	// DefaultUserFileBytes is how many bytes the files of one person may have in a minute.
	DefaultUserFileBytes = 100 << 20
	// minSecret is the smallest length of the webhook's secret.
	minSecret = 32
)

// Config of one bot. Zero values are defaults unless the comment of a field states another meaning.
// It prints without its secrets.
type Config struct {
	// Token of the bot, `<bot id>:<secret>`. Required.
	Token string
	// Account is the name of the bot in lists; "" = `default`.
	Account string
	// Mode is ModePolling (default) or ModeWebhook.
	Mode string
	// APIURL is the address of the Bot API; "" means DefaultAPIURL.
	APIURL string
	// FilesDir is the directory of a Bot API server in local mode, which names the files of
	// messages by absolute paths; "" = files are downloaded.
	FilesDir string
	// WebhookURL is the public address that Telegram calls. WebhookSecret proves that Telegram is
	// the caller: 32 to 256 characters of A-Z, a-z, 0-9, _ and -. Both are required for
	// ModeWebhook.
	WebhookURL, WebhookSecret string
	// Access is AccessPairing (default), AccessAllowlist, AccessOpen or AccessDisabled.
	Access string
	// Allow are the ids of people who may talk, Groups the ids of groups in which the bot answers.
	// Both may be empty.
	Allow, Groups []int64
	// Members is MembersListed (default) or MembersAny; Activation is ActivationMention (default)
	// or ActivationAlways; GroupStop is StopAnyone (default), StopOwn or StopAdmins.
	Members, Activation, GroupStop string
	// Agent that answers. Required.
	Agent string
	// PollTimeout of one long poll, 1 s to 50 s.
	PollTimeout time.Duration
	// MaxAttachment in bytes, at most MaxAttachment. 0 means no attachments.
	MaxAttachment int64
	// UserRate is how many messages one person may send in a minute; 0 means DefaultUserRate,
	// negative means no limit. /stop is never counted.
	UserRate int
	// UserFileBytes is how many bytes the files that are fetched for one person may have in a
	// minute; 0 means DefaultUserFileBytes, negative means no limit. A larger file takes the whole
	// allowance of a minute.
	UserFileBytes int
}

// String prints the configuration without its secrets.
func (c Config) String() string { return "telegram.Config{mode: " + c.Mode + "}" }

// GoString returns String for %#v.
func (c Config) GoString() string { return c.String() }

// LogValue returns String for structured logs.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Metrics are those of all bots of a process. Labels are from closed sets. Create them with
// NewMetrics.
type Metrics struct{ calls, updates *prometheus.CounterVec }

// NewMetrics registers the metrics; r is nil if nobody reads them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	in := metrics.In(r)
	m := &Metrics{
		calls:   in.Counters("telegram_calls_total", "Calls of the Telegram Bot API, by method and result.", "method", "result"),
		updates: in.Counters("telegram_updates_total", "Updates from Telegram, by result.", "result"),
	}
	for _, result := range []string{"accepted", "command", "duplicate", "ignored", "limited", "parked", "refused"} {
		m.updates.WithLabelValues(result)
	}
	return m
}

// call counts one call of the Bot API; result is `ok` or a reason of [channel.SendError].
func (m *Metrics) call(method, result string) { m.calls.WithLabelValues(method, result).Inc() }

// update counts one update from Telegram.
func (m *Metrics) update(result string) { m.updates.WithLabelValues(result).Inc() }

// Deps are the dependencies of a channel.
type Deps struct {
	// Records stores pairings, settings of groups and buttons. Required.
	Records channel.Records
	// Files is the directory for attachments; nil means no attachments. It stays open while the
	// channel runs.
	Files *os.Root
	// Commands fill the menu of the bot. In a group, a message that begins with one of them is for
	// the bot.
	Commands []chat.CommandInfo
	// Transport of the calls; nil means that the channel makes one (HTTP/1.1, short keep-alive
	// probes).
	Transport http.RoundTripper
	// Proxy returns the proxy of a call for the channel's own transport; nil means the one that the
	// environment names.
	Proxy func(*http.Request) (*url.URL, error)
	// Metrics and Logger; nil if none.
	Metrics *Metrics
	Logger  *slog.Logger
}

// withDefaults fills in what was left out.
func (d Deps) withDefaults(name string) Deps {
	if d.Metrics == nil {
		d.Metrics = NewMetrics(nil)
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	d.Logger = d.Logger.With("channel", name)
	if d.Transport == nil {
		d.Transport = newTransport(d.Proxy)
	}
	return d
}

var (
	tokenShape  = regexp.MustCompile(`^[0-9]{1,19}:[A-Za-z0-9_-]{8,}$`)
	secretShape = regexp.MustCompile(`^[A-Za-z0-9_-]{32,256}$`)
)

func (c Config) withDefaults() Config {
	for value, fallback := range map[*string]string{
		&c.Account: "default", &c.Mode: ModePolling, &c.APIURL: DefaultAPIURL, &c.Access: AccessPairing, &c.Members: MembersListed,
		&c.Activation: ActivationMention, &c.GroupStop: StopAnyone,
	} {
		if *value == "" {
			*value = fallback
		}
	}
	c.PollTimeout = cmp.Or(c.PollTimeout, DefaultPollTimeout)
	c.UserRate = cmp.Or(c.UserRate, DefaultUserRate)
	c.UserFileBytes = cmp.Or(c.UserFileBytes, DefaultUserFileBytes)
	c.APIURL = strings.TrimRight(c.APIURL, "/")
	return c
}

// check returns the first fault of a configuration. It never quotes a secret.
func (c Config) check() error {
	if !tokenShape.MatchString(c.Token) {
		return errors.New("the bot token must look like 123456:ABC…; @BotFather shows it")
	}
	if !chat.ValidAgentID(c.Agent) {
		return fmt.Errorf("%q cannot be the id of an agent", c.Agent)
	}
	if c.PollTimeout < time.Second || c.PollTimeout > 50*time.Second {
		return fmt.Errorf("the poll timeout must be 1s to 50s, is %s", c.PollTimeout)
	}
	if c.MaxAttachment < 0 || c.MaxAttachment > MaxAttachment {
		return fmt.Errorf("the largest attachment must be 0 to %d bytes, is %d", MaxAttachment, c.MaxAttachment)
	}
	if u, err := url.Parse(c.APIURL); err != nil || u.Host == "" || u.User != nil {
		return errors.New("the address of the Bot API must look like https://example.org and carry no password")
	}
	for _, choice := range []struct {
		name, value string
		allowed     []string
	}{
		{"mode", c.Mode, []string{ModePolling, ModeWebhook}},
		{"access", c.Access, []string{AccessPairing, AccessAllowlist, AccessOpen, AccessDisabled}},
		{"members", c.Members, []string{MembersListed, MembersAny}},
		{"activation", c.Activation, []string{ActivationMention, ActivationAlways}},
		{"group_stop", c.GroupStop, []string{StopAnyone, StopOwn, StopAdmins}},
	} {
		if err := oneOf(choice.name, choice.value, choice.allowed); err != nil {
			return err
		}
	}
	return c.checkWebhook()
}

func oneOf(name, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s must be one of %s, is %q", name, strings.Join(allowed, ", "), value)
}

func (c Config) checkWebhook() error {
	if c.Mode != ModeWebhook {
		return nil
	}
	if u, err := url.Parse(c.WebhookURL); err != nil || u.Scheme != "https" || u.Host == "" {
		return errors.New("webhook_url must be an https address that Telegram can reach")
	}
	if len(c.WebhookSecret) < minSecret {
		return fmt.Errorf("webhook_secret needs %d characters", minSecret)
	}
	if !secretShape.MatchString(c.WebhookSecret) {
		return errors.New("webhook_secret may have the characters A-Z, a-z, 0-9, _ and -, and at most 256 of them")
	}
	return nil
}

// botID returns the number before the colon of the token.
func (c Config) botID() (int64, error) {
	id, _, _ := strings.Cut(c.Token, ":")
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0, errors.New("the number before the colon of the bot token is too large")
	}
	return n, nil
}

// ErrToken is wrapped when Telegram refuses the token of a bot.
var ErrToken = errors.New("the token is refused")

// Standing is what Telegram reports about a bot.
type Standing struct {
	// Name is the bot's user name.
	Name string
	// Webhook is the address to which Telegram delivers; "" means that updates are polled.
	Webhook string
	// Problem is Telegram's reason for the last failed delivery; "" if none failed.
	Problem string
}

// Examine queries Telegram for the bot of cfg and its webhook. It changes nothing and may be called
// while the channel runs. It uses only the token and the API address of cfg, and of deps the
// transport and the proxy. No error contains the token.
func Examine(ctx context.Context, cfg Config, deps Deps) (Standing, error) {
	transport := deps.Transport
	if transport == nil {
		own := newTransport(deps.Proxy)
		defer own.CloseIdleConnections()
		transport = own
	}
	cfg = cfg.withDefaults()
	api := &client{base: cfg.APIURL, token: cfg.Token, transport: transport, metrics: NewMetrics(nil), limits: newLimiter()}
	var me struct {
		Username string `json:"username"`
	}
	if err := api.call(ctx, callTime, "getMe", nil, &me); err != nil {
		var refused *apiError
		if errors.As(err, &refused) && refused.reason == reasonUnauthorized {
			return Standing{}, fmt.Errorf("%w: %w", ErrToken, err)
		}
		return Standing{}, err
	}
	var hook struct {
		URL       string `json:"url"`
		LastError string `json:"last_error_message"`
	}
	if err := api.call(ctx, callTime, "getWebhookInfo", nil, &hook); err != nil {
		return Standing{}, err
	}
	return Standing{Name: me.Username, Webhook: hook.URL, Problem: strings.TrimSpace(hook.LastError)}, nil
}
