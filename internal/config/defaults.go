package config

import (
	"math"
	"path/filepath"
	"time"
)

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

// Default returns the configuration of a gateway without any setting. It lacks the data directory, which depends on the environment, and
// the agents, which [Load] adds when none is configured.
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

// DefaultData returns the data directory of the user: $XDG_DATA_HOME/laneway, or ~/.local/share/laneway; "" when the environment has
// neither variable. A relative XDG_DATA_HOME is ignored, as its specification requires.
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
