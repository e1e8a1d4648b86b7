package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"laneway/internal/secret"
)

// Config is every setting of a gateway. [Default] gives the defaults; the comment of a field has its unit, bounds and
// special values. A Config is a value: copying it copies the settings, but its maps and slices are shared and must not be changed.
type Config struct {
	// Listen are the addresses of the main listener, `host:port`. Default 127.0.0.1:18790. An empty host means every address.
	Listen []string `yaml:"listen"`
	// MetricsListen is the address of the metrics listener, loopback only. Default 127.0.0.1:18791. `off` = no metrics,
	// `main` = on the main listener for a read credential.
	MetricsListen string `yaml:"metrics_listen"`
	// Pprof adds /debug/pprof to the metrics listener. Default off. It is never on the main listener.
	Pprof bool `yaml:"pprof"`
	// Dashboard serves /dashboard. Default on.
	Dashboard bool `yaml:"dashboard"`
	// BehindTLSProxy states that nothing reaches the port but through TLS, or from the same host.
	BehindTLSProxy bool `yaml:"behind_tls_proxy"`
	// TrustedProxies are addresses and networks whose forwarding headers count. Default none.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// AllowedHosts are further values of the Host header, without a port.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// AllowedOrigins are further exact origins, `https://host[:port]`.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// WebhookAllowedHosts are hosts that outgoing webhooks may reach although their addresses are private.
	WebhookAllowedHosts []string `yaml:"webhook_allowed_hosts"`

	// Token gives every right; TokenFile names a file with it. Without both the data directory's own file is used.
	Token     secret.Secret `yaml:"token"`
	TokenFile string        `yaml:"token_file"`
	// Password gives the same rights as the token, for clients that ask for one.
	Password     secret.Secret `yaml:"password"`
	PasswordFile string        `yaml:"password_file"`
	// WriteToken gives reading and writing, ReadToken reading only.
	WriteToken     secret.Secret `yaml:"write_token"`
	WriteTokenFile string        `yaml:"write_token_file"`
	ReadToken      secret.Secret `yaml:"read_token"`
	ReadTokenFile  string        `yaml:"read_token_file"`

	// Database is `postgres://…` or `sqlite:PATH`. Default: laneway.db in the data directory.
	Database DatabaseURL `yaml:"database"`
	// DatabaseConns is the size of the Postgres pool, 2 to 1000. Default 20. SQLite ignores it.
	DatabaseConns int `yaml:"database_conns"`
	// Data is the data directory. Default $XDG_DATA_HOME/laneway, else ~/.local/share/laneway.
	Data string `yaml:"data"`
	// Roles are what this process does: gateway, channels, cron, worker. Default all of them.
	Roles []string `yaml:"roles"`
	// DrainTimeout is how long running turns may go on after a stop was asked for, 0s to 1h. Default 30s.
	DrainTimeout Duration `yaml:"drain_timeout"`

	// ShutdownDelay is how long a gateway that was asked to stop serves on with /readyz failing, so that load balancers send new work elsewhere before its
	// ports close; part of DrainTimeout, 0s to DrainTimeout. Default 0s.
	ShutdownDelay Duration `yaml:"shutdown_delay"`

	// Agent is a short form for trying: `echo`, `command:PROGRAM ARG…`, `openai:MODEL@BASE_URL`, `anthropic:MODEL`. It
	// becomes the agent `main`.
	Agent string `yaml:"agent"`
	// DefaultAgent answers where a message names none. Default `main` where it exists, else the only agent.
	DefaultAgent string `yaml:"default_agent"`

	Lanes    Lanes            `yaml:"lanes"`
	Queue    Queue            `yaml:"queue"`
	Agents   map[string]Agent `yaml:"agents"`
	Channels Channels         `yaml:"channels"`
	Cron     Cron             `yaml:"cron"`
	// Retention is how long messages that are over, their turns, and what was sent are kept, at least 2d. Default 30d. 0 = for ever. Transcripts stay.
	Retention Duration        `yaml:"retention"`
	History   History         `yaml:"history"`
	Limits    Limits          `yaml:"limits"`
	Budgets   Budgets         `yaml:"budgets"`
	Cluster   Cluster         `yaml:"cluster"`
	Hooks     map[string]Hook `yaml:"hooks"`
	MCP       MCP             `yaml:"mcp"`
	Log       Log             `yaml:"log"`
}

// Cron are the settings of the scheduler of jobs.
type Cron struct {
	// Enabled switches the scheduler. Default on. Off: jobs are kept and shown, nothing fires.
	Enabled bool `yaml:"enabled"`
	// Timezone of schedules that name none: an IANA name or UTC. Default UTC.
	Timezone string `yaml:"timezone"`
	// MinInterval is the shortest distance of two fires for operators, 1s to 1d. Default 1s.
	MinInterval Duration `yaml:"min_interval"`
	// UserMinInterval is the same for chat users and agents, at least MinInterval. Default 1m.
	UserMinInterval Duration `yaml:"user_min_interval"`
	// MaxJobs is how many jobs there may be in all. Default 1000000.
	MaxJobs int `yaml:"max_jobs"`
	// MaxJobsPerOwner bounds the jobs of one chat user or agent. Default 50. 0 = they may have none.
	MaxJobsPerOwner int `yaml:"max_jobs_per_owner"`
	// MaxRunsPerDay bounds the runs of one chat user or agent. Default 200. 0 = no bound.
	MaxRunsPerDay int `yaml:"max_runs_per_day"`
	// Retention is how long ledger rows with the sessions of isolated runs, and the sessions of tasks and compactions are kept, at least 1h. Default 30d.
	Retention Duration `yaml:"retention"`
	// RetentionRuns is how many ledger rows each job keeps at most. Default 10000. 0 = no bound.
	RetentionRuns int `yaml:"retention_runs"`
	// Payloads are payload kinds that run on this host: command, script. Default none.
	Payloads []string `yaml:"payloads"`
	// ScriptInterpreter reads scripts from its standard input; needed for the payload kind script.
	ScriptInterpreter string `yaml:"script_interpreter"`
	// WebhookSecret signs outgoing webhooks. WebhookSecretEnv and WebhookSecretFile name where it is instead.
	WebhookSecret     secret.Secret `yaml:"webhook_secret"`
	WebhookSecretEnv  string        `yaml:"webhook_secret_env"`
	WebhookSecretFile string        `yaml:"webhook_secret_file"`
	// WebhookToken is sent with outgoing webhooks as a bearer token. WebhookTokenEnv and WebhookTokenFile name where it is instead.
	WebhookToken     secret.Secret `yaml:"webhook_token"`
	WebhookTokenEnv  string        `yaml:"webhook_token_env"`
	WebhookTokenFile string        `yaml:"webhook_token_file"`
}

// Limits are rates and sizes. A rate of 0 is off.
type Limits struct {
	// CronWrites and Chat are calls of one principal in 60 s. Defaults 300 and 600.
	CronWrites int `yaml:"cron_writes"`
	Chat       int `yaml:"chat"`
	// Requests are requests of one connection in a second, and as many control frames and empty continuation frames. Default 200.
	Requests int `yaml:"requests"`
	// Hooks are calls of one hook in 60 s. Default 60.
	Hooks int `yaml:"hooks"`
	// Bytes are bytes of all these calls of one principal or hook in 60 s, which is what one credential can make the database grow by. Default
	// 16777216 (16 MiB), 0 = no bound, else 65536 to 1099511627776.
	Bytes int `yaml:"bytes"`
	// ChatUser are messages of one chat user in 60 s. Default 20.
	ChatUser int `yaml:"chat_user"`
	// ChatUserBytes are the bytes of the files of one chat user in 60 s. Default 104857600 (100 MiB), 0 = no bound, else 65536 to 1099511627776.
	ChatUserBytes int `yaml:"chat_user_bytes"`
	// UserTurns are turns at once of one chat user, agent or hook, or of one token that sees its own only, in one process, those of their jobs included;
	// what is over it waits. Default 10.
	UserTurns int `yaml:"user_turns"`
	// OwnWaiting is how many messages of one hook, or of one token that sees its own only, may wait in one process; CallerWaiting of any other
	// credential. More are refused with RATE_LIMITED. Jobs are never refused. Defaults 100 and 10000. 0 = no bound.
	OwnWaiting    int `yaml:"own_waiting"`
	CallerWaiting int `yaml:"waiting"`
	// OwnSessions is how many sessions one hook, or one token that sees its own only, may name; CallerSessions any other credential. More are refused
	// with LIMIT_EXCEEDED. A session that continues an earlier response counts, too. Those that the gateway makes (main, runs of jobs, completions
	// without a user) do not count. Defaults 10000 and 1000000. 0 = no bound.
	OwnSessions    int `yaml:"own_sessions"`
	CallerSessions int `yaml:"sessions"`
	// FreeSpace is how many bytes must be free on the disks of the data directory and of a SQLite database; below it new messages are
	// refused, and what was accepted before goes on. Default 134217728 (128 MiB). 0 = it is not looked at.
	FreeSpace int `yaml:"free_space"`
	// MaxPayload is the largest message on a socket in bytes, 65536 to 26214400. Default 1048576.
	MaxPayload int `yaml:"max_payload"`
	// MaxBuffered is the send buffer of one socket in bytes, at least MaxPayload. Default 8388608.
	MaxBuffered int `yaml:"max_buffered"`
	// Sockets is how many may be open; Unauthenticated of them before their handshake, UnauthenticatedPerAddress of these from one
	// address or IPv6 /64, at least 256 from loopback and from each trusted proxy. Beyond that the oldest is closed. Defaults 10000, 512, 32. Of plain HTTP connections there may be 1024 besides, and UnauthenticatedPerAddress from one address (not on
	// loopback, not from trusted proxies).
	Sockets                   int `yaml:"sockets"`
	Unauthenticated           int `yaml:"unauthenticated"`
	UnauthenticatedPerAddress int `yaml:"unauthenticated_per_address"`
	// SocketsPerPrincipal is how many one principal may have open. Default 1000.
	SocketsPerPrincipal int `yaml:"sockets_per_principal"`
}

// Cluster are the settings of several replicas on one database.
type Cluster struct {
	// NodeID is the name of this replica in lists. Default: made from the host name.
	NodeID string `yaml:"node_id"`
	// Lease is how long a silent replica keeps its sessions, 3s to 10m. Default 15s.
	Lease Duration `yaml:"lease"`
	// Heartbeat renews the lease; a lease has at least three of them. Default 3s.
	Heartbeat Duration `yaml:"heartbeat"`
	// Sweep is how often unowned work is looked for, 100ms to 1m. Default 1s.
	Sweep Duration `yaml:"sweep"`
	// AgentWait is how long work waits for an agent that no running replica has, 1m to 30d, 0 = until one has it: then messages fail with a notice. Default 10m.
	AgentWait Duration `yaml:"agent_wait"`
}

// Hook is one incoming webhook, `POST /hooks/{name}`.
type Hook struct {
	// Secret proves the sender, 32 characters or more. SecretEnv and SecretFile name where it is instead.
	Secret     secret.Secret `yaml:"secret"`
	SecretEnv  string        `yaml:"secret_env"`
	SecretFile string        `yaml:"secret_file"`
	// Scheme is laneway or github. Default laneway.
	Scheme string `yaml:"scheme"`
	// Agent that answers. Default: the default agent.
	Agent string `yaml:"agent"`
	// Session key. Default `agent:<agent>:hook:<name>`.
	Session string `yaml:"session"`
	// Prefix is put before the text.
	Prefix string `yaml:"prefix"`
	// AllowSessionKey lets the caller name the session: the main one or a free name, and none of a chat, a job or another principal.
	AllowSessionKey bool `yaml:"allow_session_key"`
}

// Log are the settings of the log.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `yaml:"level"`
	// Format is text or json. Default text.
	Format string `yaml:"format"`
	// File is the absolute path of a file for the log; at 64 MiB it becomes FILE.1, which it replaces. Default "": standard error.
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

// Public reports whether an address of the main listener can be reached from other hosts. Everything outside 127.0.0.0/8, ::1
// and `localhost` is public, so an empty host and 0.0.0.0 are, too. An address that cannot be read counts as public.
func Public(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	return !loopbackHost(host)
}

// PublicListen is the first public address of the main listener, "" when there is none.
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

// Hosts are the values of the Host header, without a port, that name this gateway: AllowedHosts, and the names in Listen. Addresses that it listens
// on are known without.
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

// TrustedPrefixes are TrustedProxies as networks. Entries that [Config.Validate] refuses are left out.
func (c Config) TrustedPrefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, entry := range c.TrustedProxies {
		if p, err := parsePrefix(entry); err == nil {
			all = append(all, p)
		}
	}
	return all
}
