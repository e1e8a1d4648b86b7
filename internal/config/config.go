// Package config turns a file, the environment and the command line into one checked [Config].
//
// # Ideas
//
// One path names a setting everywhere. The key `queue.cap` of the YAML file is the variable
// LANEWAY_QUEUE_CAP, and every error uses the same path. Nothing is declared twice: the yaml tag of
// a field is its path, and the name of the variable is derived from the path. A few settings also
// have short names, see [Aliases].
//
// Layers are applied in order: defaults, file, environment, flags. The source of each value is
// recorded, so that `laneway serve --print-config` can print it and a fault can name the line or
// the variable to change.
//
// All faults are reported at once. Unknown keys, wrong types, values out of range and contradictory
// settings are collected as [FaultsError]. The start is refused with exit code 78 and a sentence
// for each fault.
//
// Secrets have the type of package secret, which is never printed.
//
// # Two checks
//
// [Load] checks whether the settings are a valid configuration. [Preflight] checks whether it may
// start on this machine: the strength of tokens for the addresses, modes of files, TLS, the
// database's certificate. Preflight changes nothing. Only after every check has passed,
// [Plan.Prepare] writes the data directory (0700) and the token file (0600).
//
// # What it does not do
//
// It reads no environment itself: the caller provides a lookup function. It opens no socket and no
// database, resolves no name and starts no goroutine. It imports no other package of this module,
// so every package can use it.
//
// # Example
//
//	loaded, err := config.Load(config.Options{File: "laneway.yaml", LookupEnv: os.LookupEnv})
//	if err != nil {
//		return err // config.FaultsError: each fault with path, place and sentence
//	}
//	plan, err := config.Preflight(loaded)
//	if err != nil {
//		return err
//	}
//	creds, err := plan.Prepare()
package config

import (
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"laneway/internal/secret"
)

// Config is every setting of a gateway. [Default] gives the defaults; the comment of a field has
// its unit, range and special values. A Config is a value: copying it copies the settings, but its
// maps and slices are shared and must not be changed.
type Config struct {
	// Listen are the addresses of the main listener, `host:port`. Default 127.0.0.1:18790. An empty
	// host means every address.
	Listen []string `yaml:"listen"`
	// MetricsListen is the address of the metrics listener, loopback only. Default 127.0.0.1:18791.
	// `off` = no metrics, `main` = on the main listener for a read credential.
	MetricsListen string `yaml:"metrics_listen"`
	// Pprof adds /debug/pprof to the metrics listener. Default off. It is never on the main
	// listener.
	Pprof bool `yaml:"pprof"`
	// Dashboard serves /dashboard. Default on.
	Dashboard bool `yaml:"dashboard"`
	// BehindTLSProxy says that clients reach the port only through a TLS proxy or from the same
	// host. Without it, a public address is refused.
	BehindTLSProxy bool `yaml:"behind_tls_proxy"`
	// TrustedProxies are addresses and networks of your proxies, such as `10.0.0.0/8`: their
	// forwarding headers are trusted. Default empty.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// AllowedHosts are additional values of the Host header, without a port, such as
	// `gateway.example.org`.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// AllowedOrigins are additional exact origins of web pages, `https://host[:port]`.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// WebhookAllowedHosts are hosts with private addresses that outgoing webhooks may reach.
	WebhookAllowedHosts []string `yaml:"webhook_allowed_hosts"`

	// Token has every permission; TokenFile names a file with it. Without both, laneway uses the
	// token file of the data directory.
	Token     secret.Secret `yaml:"token"`
	TokenFile string        `yaml:"token_file"`
	// Password has the same permissions as the token, for clients that ask for a password.
	Password     secret.Secret `yaml:"password"`
	PasswordFile string        `yaml:"password_file"`
	// WriteToken may read and write, ReadToken may only read.
	WriteToken     secret.Secret `yaml:"write_token"`
	WriteTokenFile string        `yaml:"write_token_file"`
	ReadToken      secret.Secret `yaml:"read_token"`
	ReadTokenFile  string        `yaml:"read_token_file"`

	// Database is `postgres://…` or `sqlite:PATH`. Default: laneway.db in the data directory.
	Database DatabaseURL `yaml:"database"`
	// DatabaseConns is the size of the Postgres pool, 2 to 1000. Default 20. SQLite ignores it.
	DatabaseConns int `yaml:"database_conns"`
	// Data is the data directory. Default $XDG_DATA_HOME/laneway, or ~/.local/share/laneway.
	Data string `yaml:"data"`
	// Roles of this process: gateway, channels, cron, worker. Default all of them.
	Roles []string `yaml:"roles"`
	// DrainTimeout is how long running turns may continue after a stop, 0s to 1h. Default 30s.
	DrainTimeout Duration `yaml:"drain_timeout"`

	// ShutdownDelay is how long a stopping gateway keeps serving while /readyz fails, so that load
	// balancers send new work elsewhere first. It is part of DrainTimeout, 0s to DrainTimeout.
	// Default 0s.
	ShutdownDelay Duration `yaml:"shutdown_delay"`

	// Agent is a short form for trying laneway: `echo`, `command:PROGRAM ARG…`,
	// `openai:MODEL@BASE_URL`, `anthropic:MODEL`. It becomes the agent `main`.
	Agent string `yaml:"agent"`
	// DefaultAgent answers messages that name no agent. Default `main` if it exists, otherwise the
	// only agent.
	DefaultAgent string `yaml:"default_agent"`

	Lanes    Lanes            `yaml:"lanes"`
	Queue    Queue            `yaml:"queue"`
	Agents   map[string]Agent `yaml:"agents"`
	Channels Channels         `yaml:"channels"`
	Cron     Cron             `yaml:"cron"`
	// Retention is how long laneway keeps finished messages, their turns, and sent messages, at
	// least 2d. Default 30d. 0 = forever. Transcripts are always kept.
	Retention Duration        `yaml:"retention"`
	History   History         `yaml:"history"`
	Limits    Limits          `yaml:"limits"`
	Budgets   Budgets         `yaml:"budgets"`
	Cluster   Cluster         `yaml:"cluster"`
	Hooks     map[string]Hook `yaml:"hooks"`
	MCP       MCP             `yaml:"mcp"`
	Log       Log             `yaml:"log"`
}

// Cron are the settings of the cron scheduler.
type Cron struct {
	// Enabled turns the scheduler on. Default on. When it is off, you still see your jobs, but they
	// do not run.
	Enabled bool `yaml:"enabled"`
	// Timezone is the zone of schedules that name none: an IANA name or UTC. Default UTC.
	Timezone string `yaml:"timezone"`
	// MinInterval is the shortest interval between two runs of an operator's job, 1s to 1d. Default
	// 1s.
	MinInterval Duration `yaml:"min_interval"`
	// UserMinInterval is the same for chat users and agents, at least MinInterval. Default 1m.
	UserMinInterval Duration `yaml:"user_min_interval"`
	// MaxJobs is the maximum number of jobs in total. Default 1000000.
	MaxJobs int `yaml:"max_jobs"`
	// MaxJobsPerOwner is how many jobs one chat user or agent may have. Default 50. 0 = no job.
	MaxJobsPerOwner int `yaml:"max_jobs_per_owner"`
	// MaxRunsPerDay is how many runs the jobs of one chat user or agent may have in a day. Default
	// 200. 0 = no limit.
	MaxRunsPerDay int `yaml:"max_runs_per_day"`
	// Retention is how long laneway keeps ledger rows, the sessions of isolated runs, and the
	// sessions of tasks and compactions, at least 1h. Default 30d.
	Retention Duration `yaml:"retention"`
	// RetentionRuns is the maximum number of ledger rows of each job. Default 10000. 0 = no limit.
	RetentionRuns int `yaml:"retention_runs"`
	// Payloads are the payload kinds that may run on this host: command, script. Default empty.
	Payloads []string `yaml:"payloads"`
	// ScriptInterpreter reads scripts from its standard input; required for the payload kind
	// script.
	ScriptInterpreter string `yaml:"script_interpreter"`
	// WebhookSecret signs outgoing webhooks. WebhookSecretEnv or WebhookSecretFile name a variable
	// or file that has it.
	WebhookSecret     secret.Secret `yaml:"webhook_secret"`
	WebhookSecretEnv  string        `yaml:"webhook_secret_env"`
	WebhookSecretFile string        `yaml:"webhook_secret_file"`
	// WebhookToken is the bearer token of outgoing webhooks. WebhookTokenEnv or WebhookTokenFile
	// name a variable or file that has it.
	WebhookToken     secret.Secret `yaml:"webhook_token"`
	WebhookTokenEnv  string        `yaml:"webhook_token_env"`
	WebhookTokenFile string        `yaml:"webhook_token_file"`
}

// Limits are rates and sizes. A rate of 0 is off.
type Limits struct {
	// CronWrites is how many changes of jobs one credential may make in 60 s, Chat how many
	// messages it may send. Defaults 300 and 600.
	CronWrites int `yaml:"cron_writes"`
	Chat       int `yaml:"chat"`
	// Requests is how many requests one connection may send in a second; the same limit applies to
	// control frames and to empty continuation frames. Default 200.
	Requests int `yaml:"requests"`
	// Hooks is how many calls one hook accepts in 60 s. Default 60.
	Hooks int `yaml:"hooks"`
	// Bytes is how many bytes all these calls of one credential or hook may have in 60 s. It limits
	// how fast one credential can grow the database. Default 16777216 (16 MiB), 0 = no limit,
	// otherwise 65536 to 1099511627776.
	Bytes int `yaml:"bytes"`
	// ChatUser is how many messages one chat user may send in 60 s. Default 20.
	ChatUser int `yaml:"chat_user"`
	// ChatUserBytes is how many bytes of files one chat user may send in 60 s. Default 104857600
	// (100 MiB), 0 = no limit, otherwise 65536 to 1099511627776.
	ChatUserBytes int `yaml:"chat_user_bytes"`
	// UserTurns is how many turns of one chat user, agent or hook, or of one token that sees only
	// its own data, run at the same time in a process, with those of their jobs. Further turns
	// wait. Default 10.
	UserTurns int `yaml:"user_turns"`
	// OwnWaiting is how many messages of one hook, or of one token that sees only its own data, may
	// wait in one process; CallerWaiting is the same for any other credential. Further messages are
	// refused with RATE_LIMITED, runs of jobs never. Defaults 100 and 10000. 0 = no limit.
	OwnWaiting    int `yaml:"own_waiting"`
	CallerWaiting int `yaml:"waiting"`
	// OwnSessions is how many sessions one hook, or one token that sees only its own data, may
	// name; CallerSessions is the same for any other credential. Further sessions are refused with
	// LIMIT_EXCEEDED. A session that continues an earlier response counts. Sessions that laneway
	// creates itself (main, runs of jobs, completions without a user) do not count. Defaults 10000
	// and 1000000. 0 = no limit.
	OwnSessions    int `yaml:"own_sessions"`
	CallerSessions int `yaml:"sessions"`
	// FreeSpace is how many bytes must stay free on the disks of the data directory and of a SQLite
	// database. Below it, laneway refuses new messages and finishes accepted ones. Default
	// 134217728 (128 MiB). 0 = no check.
	FreeSpace int `yaml:"free_space"`
	// KeptFiles is how many bytes laneway keeps of the files that agents created for one principal
	// and that no channel sent. It removes the oldest first. Default 1073741824 (1 GiB). 0 = no
	// limit.
	KeptFiles int `yaml:"kept_files"`
	// MaxPayload is the largest message on a socket in bytes, 65536 to 26214400. Default 1048576.
	MaxPayload int `yaml:"max_payload"`
	// MaxBuffered is the send buffer of one socket in bytes, at least MaxPayload. Default 8388608.
	MaxBuffered int `yaml:"max_buffered"`
	// Sockets is how many sockets may be open. Unauthenticated limits those before their handshake,
	// and UnauthenticatedPerAddress limits these from one address or IPv6 /64, with at least 256
	// from loopback and from each trusted proxy. At a limit, the oldest is closed. Defaults 10000,
	// 512, 32. In addition, 1024 plain HTTP connections may be open, and UnauthenticatedPerAddress
	// from one address (not on loopback, not from trusted proxies).
	Sockets                   int `yaml:"sockets"`
	Unauthenticated           int `yaml:"unauthenticated"`
	UnauthenticatedPerAddress int `yaml:"unauthenticated_per_address"`
	// SocketsPerPrincipal is how many sockets one principal may have open. Default 1000.
	SocketsPerPrincipal int `yaml:"sockets_per_principal"`
}

// Cluster are the settings of several replicas on one database.
type Cluster struct {
	// NodeID is the name of this replica in lists. Default: derived from the host name.
	NodeID string `yaml:"node_id"`
	// Lease is how long a replica without a heartbeat keeps its sessions, 3s to 10m. Default 15s.
	Lease Duration `yaml:"lease"`
	// Heartbeat is how often a replica renews its lease; a lease lasts at least three heartbeats.
	// Default 3s.
	Heartbeat Duration `yaml:"heartbeat"`
	// Sweep is how often laneway looks for unowned work, 100ms to 1m. Default 1s.
	Sweep Duration `yaml:"sweep"`
	// AgentWait is how long work waits for an agent that no running replica has, 1m to 30d, 0 =
	// without limit. Then messages fail with a notice. Default 10m.
	AgentWait Duration `yaml:"agent_wait"`
}

// Hook is one incoming webhook, `POST /hooks/{name}`.
type Hook struct {
	// Secret authenticates the sender, 32 characters or more. SecretEnv or SecretFile name a
	// variable or file that has it.
	Secret     secret.Secret `yaml:"secret"`
	SecretEnv  string        `yaml:"secret_env"`
	SecretFile string        `yaml:"secret_file"`
	// Scheme is laneway or github. Default laneway.
	Scheme string `yaml:"scheme"`
	// Agent that answers. Default: the default agent.
	Agent string `yaml:"agent"`
	// Session key. Default `agent:<agent>:hook:<name>`.
	Session string `yaml:"session"`
	// Prefix is text that laneway puts before the text of each call.
	Prefix string `yaml:"prefix"`
	// AllowSessionKey allows the caller to name the session: the main one or a free name, but not a
	// session of a chat, a job or another principal.
	AllowSessionKey bool `yaml:"allow_session_key"`
}

// Log are the settings of the log.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `yaml:"level"`
	// Format is text or json. Default text.
	Format string `yaml:"format"`
	// File is the absolute path of the log file. At 64 MiB it is renamed to FILE.1, replacing that
	// file. Default "": standard error.
	File string `yaml:"file"`
}

// Role names of [Config.Roles].
const (
	RoleGateway  = "gateway"
	RoleChannels = "channels"
	RoleCron     = "cron"
	RoleWorker   = "worker"
)

// HasRole reports whether this process has the role.
func (c Config) HasRole(role string) bool {
	return slices.Contains(c.Roles, role)
}

// Public reports whether an address of the main listener can be reached from other hosts.
// Everything except 127.0.0.0/8, ::1 and `localhost` is public, including an empty host and
// 0.0.0.0. An address that cannot be parsed counts as public.
func Public(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	return !loopbackHost(host)
}

// PublicListen returns the first public address of the main listener, or "".
func (c Config) PublicListen() string {
	for _, address := range c.Listen {
		if Public(address) {
			return address
		}
	}
	return ""
}

func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Hosts returns the values of the Host header, without a port, that name this gateway: AllowedHosts
// and the names in Listen. Addresses on which it listens are always accepted and not included.
func (c Config) Hosts() []string {
	hosts := slices.Clone(c.AllowedHosts)
	for _, entry := range c.Listen {
		if host, _, err := net.SplitHostPort(entry); err == nil && host != "" {
			if _, err := netip.ParseAddr(host); err != nil {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// TrustedPrefixes returns TrustedProxies as networks. Entries that [Config.Validate] refuses are
// left out.
func (c Config) TrustedPrefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, entry := range c.TrustedProxies {
		if p, err := parsePrefix(entry); err == nil {
			all = append(all, p)
		}
	}
	return all
}

const (
	second = time.Second
	minute = time.Minute
	hour   = time.Hour

	noUpperBound = math.MaxInt

	// DefaultListen is the address of the main listener.
	DefaultListen = "127.0.0.1:18790"
	// DefaultMetricsListen is the address of the metrics listener.
	DefaultMetricsListen = "127.0.0.1:18791"
	// MainAgent is the id of the agent that exists when nothing else is configured.
	MainAgent = "main"
)

// Default returns the configuration of a gateway without any setting. It lacks the data directory,
// which depends on the environment, and the agents, which [Load] adds when none is configured.
func Default() Config {
	return Config{
		Listen:        []string{DefaultListen},
		MetricsListen: DefaultMetricsListen,
		Dashboard:     true,
		DatabaseConns: 20,
		Roles:         []string{RoleGateway, RoleChannels, RoleCron, RoleWorker},
		DrainTimeout:  30 * Duration(second),
		Lanes:         Lanes{Main: 30, Subagent: 50, Team: 100, Cron: 30},
		Queue:         defaultQueue(),
		Agents:        map[string]Agent{},
		Channels:      Channels{Web: WebChannel{DebounceMs: new(0)}, Telegram: defaultTelegram()},
		Cron:          defaultCron(),
		Retention:     30 * Duration(day),
		Limits:        defaultLimits(),
		Budgets:       Budgets{Currency: "USD"},
		Cluster:       Cluster{Lease: 15 * Duration(second), Heartbeat: 3 * Duration(second), Sweep: Duration(second), AgentWait: 10 * Duration(minute)},
		Hooks:         map[string]Hook{},
		MCP:           MCP{Servers: map[string]MCPServer{}},
		Log:           Log{Level: "info", Format: "text"},
	}
}

func defaultQueue() Queue {
	return Queue{
		Mode: "queue", Cap: 10, Drop: "old", DebounceMs: 800, DebounceMaxMessages: 12, DebounceMaxBytes: 50_000,
		MaxConcurrent: 1, GroupMaxConcurrent: 3, ThrottlePercent: 60,
	}
}

func (t *Telegram) setDefaults() {
	*t = defaultTelegram()
	t.Account = "" // its key in Accounts, see fill
}

func defaultTelegram() Telegram {
	return Telegram{
		Enabled: true, Account: "default", Mode: "polling", APIURL: "https://api.telegram.org", Access: "pairing",
		Members: "listed", Activation: "mention", GroupStop: "anyone", PollTimeout: 30 * Duration(second), MaxAttachment: telegramMaxFile,
	}
}

func defaultCron() Cron {
	return Cron{
		Enabled: true, Timezone: "UTC", MinInterval: Duration(second), UserMinInterval: Duration(minute), MaxJobs: 1_000_000,
		MaxJobsPerOwner: 50, MaxRunsPerDay: 200, Retention: 30 * Duration(day), RetentionRuns: 10_000,
	}
}

func defaultLimits() Limits {
	return Limits{
		CronWrites: 300, Chat: 600, Requests: 200, Hooks: 60, Bytes: 16 << 20, ChatUser: 20, ChatUserBytes: 100 << 20, UserTurns: 10, OwnWaiting: 100, CallerWaiting: 10_000, OwnSessions: 10_000, CallerSessions: 1_000_000, FreeSpace: 128 << 20, KeptFiles: 1 << 30,
		MaxPayload: 1 << 20, MaxBuffered: 8 << 20,
		Sockets: 10_000, Unauthenticated: 512, UnauthenticatedPerAddress: 32, SocketsPerPrincipal: 1_000,
	}
}

// DefaultData returns the data directory of the user: $XDG_DATA_HOME/laneway, or
// ~/.local/share/laneway; "" when the environment has neither variable. A relative XDG_DATA_HOME is
// ignored, as its specification requires.
func DefaultData(lookupEnv func(string) (string, bool)) string {
	if xdg, _ := lookupEnv("XDG_DATA_HOME"); filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "laneway")
	}
	if home, _ := lookupEnv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", "laneway")
	}
	return ""
}

// setDefaults sets the defaults of a map entry before the file is applied to it.
func (a *Agent) setDefaults() { *a = newAgent() }

func (h *Hook) setDefaults() { h.Scheme = "laneway" }

// Price is the price of a million tokens of an agent, in the currency of [Budgets]. Costs are
// counted when Input and Output are given.
type Price struct {
	// Input is the price of a million tokens that the model reads, Output of those that it writes,
	// at most 1000000. 0 = free of charge.
	Input  *float64 `yaml:"input"`
	Output *float64 `yaml:"output"`
	// Cached is the price of a million tokens that came from the provider's cache. Default: Input.
	Cached *float64 `yaml:"cached"`
}

// Amounts returns the three prices; 0 for a price that is not given.
func (p Price) Amounts() (input, output, cached float64) {
	or := func(v *float64, other float64) float64 {
		if v == nil {
			return other
		}
		return *v
	}
	input = or(p.Input, 0)
	return input, or(p.Output, 0), or(p.Cached, input)
}

// known reports whether requests of the agent can be priced.
func (p Price) known() bool { return p.Input != nil && p.Output != nil }

func (p Price) validate(a at) {
	for _, amount := range []struct {
		name  string
		value *float64
	}{{"input", p.Input}, {"output", p.Output}, {"cached", p.Cached}} {
		if amount.value != nil {
			a.amount(amount.name, *amount.value, maxPrice)
		}
	}
	if p != (Price{}) && !p.known() {
		a.addf("needs input and output; use 0 where tokens cost nothing")
	}
}

const (
	maxPrice  = 1_000_000
	maxMoney  = 1_000_000_000
	maxTokens = 1 << 50
)

// amount reports a number below 0 or above most.
func (a at) amount(name string, value, most float64) {
	if value < 0 || value > most || math.IsNaN(value) {
		a.key(name).addf("must be between 0 and %g, is %g", most, value)
	}
}

// Budgets limit what agents use. A turn that has exceeded one ends before its next request to a
// model.
type Budgets struct {
	// Currency of prices and budgets, three letters. Default USD.
	Currency string `yaml:"currency"`
	// Turn limits one turn; Job the turns of one job on one day, Principal those of one user, hook
	// or credential, Day those of all. Days begin in the time zone cron.timezone.
	Turn      Budget `yaml:"turn"`
	Job       Budget `yaml:"job"`
	Principal Budget `yaml:"principal"`
	Day       Budget `yaml:"day"`
}

// Budget is a limit of tokens, of money, or of both. The limit that is reached first applies.
type Budget struct {
	// Tokens is how many tokens models may read and write. Default 0 = no limit.
	Tokens int `yaml:"tokens"`
	// Money is the limit in the currency of the budgets. Default 0 = no limit.
	Money float64 `yaml:"money"`
}

var currencyRule = regexp.MustCompile(`^[A-Z]{3}$`)

func (b Budgets) validate(a at) {
	if !currencyRule.MatchString(b.Currency) {
		a.key("currency").addf("must be three capital letters such as EUR, is %q", b.Currency)
	}
	for name, one := range b.all() {
		a.key(name).between("tokens", one.Tokens, 0, maxTokens)
		a.key(name).amount("money", one.Money, maxMoney)
	}
}

func (b Budgets) all() map[string]Budget {
	return map[string]Budget{"turn": b.Turn, "job": b.Job, "principal": b.Principal, "day": b.Day}
}

// checkPrices reports a money budget when the requests of an agent have no price, because it would
// limit nothing.
func (c Config) checkPrices(root at) {
	money := false
	for _, one := range c.Budgets.all() {
		money = money || one.Money > 0
	}
	if !money {
		return
	}
	for _, id := range sortedNames(c.Agents) {
		a := c.Agents[id]
		if (a.Runner == RunnerOpenAI || a.Runner == RunnerAnthropic) && !a.Price.known() {
			root.key("agents").key(id).key("price").addf("is needed because there is a budget of money; give input and output for a million tokens, 0 where they cost nothing")
		}
	}
}

// History are the settings of earlier conversations.
type History struct {
	// SummaryAgent is the agent, of runner openai or anthropic, that summarises the conversations
	// of each user by day, week and month. Default: none, and no summaries.
	SummaryAgent string `yaml:"summary_agent"`
}

func (h History) validate(a at, agents map[string]Agent) {
	if h.SummaryAgent == "" {
		return
	}
	switch agent, ok := agents[h.SummaryAgent]; {
	case !ok:
		a.key("summary_agent").addf("there is no agent %q", h.SummaryAgent)
	case agent.Runner != RunnerOpenAI && agent.Runner != RunnerAnthropic:
		a.key("summary_agent").addf("%q is an agent of runner %s; summaries need one of runner openai or anthropic", h.SummaryAgent, agent.Runner)
	}
}
