package app

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/agent/anthropic"
	"laneway/internal/agent/command"
	"laneway/internal/agent/echo"
	"laneway/internal/agent/httprunner"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/dispatch"
	"laneway/internal/process"
	"laneway/internal/secret"
)

// surroundings is what this process provides to agents that run as programs.
type surroundings struct {
	lookup func(string) (string, bool) // reads the environment
	self   string                      // path of this program; "" = unknown
	reaper *process.Reaper             // nil = processes that programs leave are not ended
	// passed returns additional variables for an agent; may be nil.
	passed func(config.Agent) map[string]string
	gauge  *agent.Gauge // of the agent's endpoint; may be nil
	// sessions stores the sessions of agents that keep a conversation themselves; nil = they are not stored.
	sessions agent.Sessions
}

// bridge returns the command that serves the tools of a turn over standard input and output.
func (s surroundings) bridge() []string {
	if s.self == "" {
		return nil
	}
	return []string{s.self, "mcp"}
}

// buildAgents returns the configured agents, the default one first.
func buildAgents(cfg config.Config, around surroundings, log *slog.Logger) ([]dispatch.Agent, error) {
	ids := make([]string, 0, len(cfg.Agents))
	for id := range cfg.Agents {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == cfg.DefaultAgent, b != cfg.DefaultAgent && a < b:
			return -1
		default:
			return 1
		}
	})
	gauges := gaugesByEndpoint{}
	agents := make([]dispatch.Agent, 0, len(ids))
	for _, id := range ids {
		a := cfg.Agents[id]
		around.gauge = gauges.of(a)
		runner, err := buildRunner(a, around, log.With("agent", id))
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", id, err)
		}
		agents = append(agents, dispatch.Agent{
			Info:   agent.Info{ID: id, Name: nameOf(id, a), Model: a.Model, Runner: a.Runner, Servers: a.MCP},
			Runner: runner, ContextWindow: a.ContextWindow, Gauge: around.gauge, Timeout: time.Duration(a.Timeout), SystemPrompt: a.System,
			Tools: toolsOf(a), Program: isProgram(a), Kept: a.Runner == config.RunnerACP, Outside: outsideOf(a),
			EstimateUsage: isModel(a), Compacts: isModel(a), Dirs: dirsOf(a),
		})
	}
	return agents, nil
}

func dirsOf(a config.Agent) []string {
	if a.Dir == "" {
		return nil
	}
	return append([]string{a.Dir}, a.Dirs...)
}

// gaugesByEndpoint estimates how endpoints count tokens. Agents with the same endpoint share a gauge.
type gaugesByEndpoint map[string]*agent.Gauge

// of returns the gauge for the endpoint of an agent; nil when the agent has no model.
func (g gaugesByEndpoint) of(a config.Agent) *agent.Gauge {
	if !isModel(a) {
		return nil
	}
	endpoint := a.Runner + " " + a.BaseURL
	if g[endpoint] == nil {
		g[endpoint] = agent.NewGauge(endpoint)
	}
	return g[endpoint]
}

// closeAgents closes what runners keep between turns: processes and idle connections.
func closeAgents(agents []dispatch.Agent) {
	var group sync.WaitGroup
	for _, a := range agents {
		if closer, ok := a.Runner.(interface{ Close() }); ok {
			group.Go(closer.Close)
		}
	}
	group.Wait()
}

// toolsOf returns the gateway's tools for an agent. Models and programs have all of them unless the configuration lists some.
func toolsOf(a config.Agent) dispatch.Tools {
	switch {
	case !isModel(a) && !isProgram(a):
		return dispatch.Tools{}
	case a.Tools.Off():
		return dispatch.Tools{Servers: a.MCP}
	default:
		return dispatch.Tools{Default: true, Names: a.Tools, Servers: a.MCP}
	}
}

// outsideOf returns what of an agent is text from outside. The gateway sees the steps of a model, and those of a program that reports them.
func outsideOf(a config.Agent) dispatch.Outside {
	switch {
	case isModel(a) || a.Runner == config.RunnerEcho || a.Outside == "never":
		return dispatch.Outside{}
	case a.Outside == "always":
		return dispatch.Outside{Always: true}
	default:
		return dispatch.Outside{Reads: isProgram(a), Answers: a.Runner != config.RunnerACP}
	}
}

// isProgram reports whether the agent is a program on this host, which calls its tools over MCP.
func isProgram(a config.Agent) bool {
	return a.Runner == config.RunnerCommand || a.Runner == config.RunnerACP
}

// isModel reports whether the agent is a model behind an endpoint: its only input is a conversation.
func isModel(a config.Agent) bool {
	return a.Runner == config.RunnerOpenAI || a.Runner == config.RunnerAnthropic
}

func nameOf(id string, a config.Agent) string {
	if a.Name != "" {
		return a.Name
	}
	return id
}

func buildRunner(a config.Agent, around surroundings, log *slog.Logger) (agent.Runner, error) {
	switch a.Runner {
	case config.RunnerEcho:
		return echo.New(echo.Config{
			Delay: time.Duration(a.Delay), Chunk: a.Chunk, ChunkDelay: time.Duration(a.ChunkDelay),
			FailWith: chat.FailReason(a.FailWith), Script: a.Script, MaxAnswer: a.OutputLimit,
		})
	case config.RunnerCommand:
		return command.New(command.Config{
			Argv: a.Command, Dir: a.Dir, Env: around.env(a), Input: command.Input(a.Input), Output: command.Output(a.Output), MaxAnswer: a.OutputLimit, Reaper: around.reaper,
			Sessions: around.sessions,
		}, around.lookup, log)
	case config.RunnerACP:
		return buildACP(a, around, log)
	case config.RunnerHTTP:
		return httprunner.New(httprunner.Config{
			URL: a.URL, Secret: a.Secret, MaxAnswer: a.OutputLimit, FirstByte: time.Duration(a.FirstByteTimeout), Silence: time.Duration(a.SilenceTimeout),
			Retries: retries(a.Retries),
		}, modelTransport(), log)
	case config.RunnerOpenAI:
		return openai.New(openai.Config{
			BaseURL: a.BaseURL, APIKey: secret.New(a.APIKey.Reveal()), Model: a.Model, ContextWindow: a.ContextWindow, Gauge: around.gauge,
			MaxTokens: a.MaxTokens, Temperature: a.Temperature, TopP: a.TopP, Stop: a.Stop, MaxAnswer: a.OutputLimit,
			FirstByte: time.Duration(a.FirstByteTimeout), Silence: time.Duration(a.SilenceTimeout), Retries: retries(a.Retries),
		}, modelTransport(), log)
	case config.RunnerAnthropic:
		return anthropic.New(anthropic.Config{
			BaseURL: a.BaseURL, APIKey: secret.New(a.APIKey.Reveal()), Model: a.Model, ContextWindow: a.ContextWindow, Gauge: around.gauge,
			MaxTokens: a.MaxTokens, Temperature: a.Temperature, TopP: a.TopP, Stop: a.Stop, MaxAnswer: a.OutputLimit,
			FirstByte: time.Duration(a.FirstByteTimeout), Silence: time.Duration(a.SilenceTimeout), Retries: retries(a.Retries),
		}, modelTransport(), log)
	default:
		return nil, fmt.Errorf("there is no runner %q", a.Runner)
	}
}

// buildACP returns an agent that speaks ACP: a program, or a preset. A preset that is not installed is accepted: its turns fail with that
// error, and it can be installed later.
func buildACP(a config.Agent, around surroundings, log *slog.Logger) (agent.Runner, error) {
	cfg := acp.Config{
		Argv: a.Command, Dir: a.Dir, Env: around.env(a), MaxAnswer: a.OutputLimit, Idle: time.Duration(a.IdleTimeout), MaxProcesses: a.MaxProcesses,
		QuestionTime: time.Duration(a.QuestionTimeout), Bridge: around.bridge(), Reaper: around.reaper, Sessions: around.sessions,
	}
	if preset, ok := config.PresetNamed(a.Preset); ok {
		var err error
		if cfg.Argv, cfg.Installs, err = preset.Find(around.lookup); err != nil {
			log.Warn("turns of an agent will fail", "err", err)
			cfg.Argv = append([]string{preset.Program}, preset.Args...)
		}
		cfg.NoServers, cfg.UsageOfSession = preset.NoServers, preset.UsageOfSession
		cfg.SignIn = "run: " + preset.Login + " (as the user of the gateway)"
		if len(preset.Keys) > 0 {
			cfg.SignIn += ", or set " + preset.Keys[0]
		}
		if preset.Key(func(name string) (string, bool) { value, ok := cfg.Env[name]; return value, ok }) != "" {
			cfg.Auth = preset.Auth
		}
	}
	return acp.New(cfg, around.lookup, log)
}

// env returns the variables of a program: the configured ones, and those that are passed to it.
func (s surroundings) env(a config.Agent) map[string]string {
	if s.passed == nil {
		return a.Env
	}
	env := s.passed(a)
	maps.Copy(env, a.Env)
	return env
}

// retries maps the configured number, where 0 means no retries, to the runners' number, where a negative one does.
func retries(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// modelTransport returns a connection pool for one agent, so that a blocked endpoint does not delay other agents.
func modelTransport() http.RoundTripper {
	t := &http.Transport{
		Proxy: proxyOf, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
	return t
}

// proxyOf returns the proxy of a request: the one of HTTPS_PROXY or HTTP_PROXY, otherwise that of ALL_PROXY, which most programs use and net/http does not; in both
// cases. NO_PROXY applies to all of them.
func proxyOf(r *http.Request) (*url.URL, error) {
	if u, err := http.ProxyFromEnvironment(r); u != nil || err != nil {
		return u, err
	}
	return proxyFor(r.URL, os.Getenv) //nolint:forbidigo // beside http.ProxyFromEnvironment, which reads the same environment
}

// proxyFor returns the proxy of ALL_PROXY for an address, nil if a variable of its scheme or NO_PROXY is responsible, or if the host is this one.
func proxyFor(to *url.URL, env func(string) string) (*url.URL, error) {
	either := func(name string) string { return cmp.Or(env(name), env(strings.ToLower(name))) }
	all := either("ALL_PROXY")
	if all == "" || either(strings.ToUpper(to.Scheme)+"_PROXY") != "" || to.Hostname() == "localhost" {
		return nil, nil //nolint:nilnil // as http.Transport.Proxy wants it
	}
	if ip, err := netip.ParseAddr(to.Hostname()); err == nil && ip.IsLoopback() || bypassed(to, either("NO_PROXY")) {
		return nil, nil //nolint:nilnil // as above
	}
	proxy, err := url.Parse(all)
	if err != nil || proxy.Host == "" || proxy.Scheme == "" {
		proxy, err = url.Parse("http://" + all)
	}
	if err != nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, proxy.Scheme) {
		return nil, errors.New("ALL_PROXY is not the address of an http, https, socks5 or socks5h proxy")
	}
	return proxy, nil
}

// bypassed reports whether NO_PROXY names a host: by its address, its network, its name or a domain, with or without the port, or all by *.
func bypassed(to *url.URL, list string) bool {
	host := strings.ToLower(strings.TrimSuffix(to.Hostname(), "."))
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	ip, errIP := netip.ParseAddr(host)
	for entry := range strings.SplitSeq(strings.ToLower(list), ",") {
		entry = strings.TrimSpace(entry)
		if network, err := netip.ParsePrefix(entry); err == nil {
			if errIP == nil && network.Contains(ip.Unmap()) {
				return true
			}
			continue
		}
		if name, only, err := net.SplitHostPort(entry); err == nil {
			if only != port {
				continue
			}
			entry = name
		}
		entry = strings.Trim(strings.TrimPrefix(entry, "*."), "[]")
		domain := strings.TrimPrefix(entry, ".")
		switch {
		case entry == "*":
			return true
		case domain == "":
		case host == domain && entry == domain, strings.HasSuffix(host, "."+domain):
			return true
		}
	}
	return false
}
