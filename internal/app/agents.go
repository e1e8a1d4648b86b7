package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"laneway/internal/scheduler"
	"laneway/internal/secret"
	"laneway/internal/tool/external"
	"laneway/internal/usage"
)

// surroundings is what this process provides to agents that run as programs.
type surroundings struct {
	lookup func(string) (string, bool) // reads the environment
	self   string                      // path of this program; "" = unknown
	reaper *process.Reaper             // nil = processes that programs leave are not ended
	// passed returns additional variables for an agent; may be nil.
	passed func(config.Agent) map[string]string
	gauge  *agent.Gauge // of the agent's endpoint; may be nil
	// sessions stores the sessions of agents that keep a conversation themselves; nil = they are
	// not stored.
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
	ids := slices.Collect(maps.Keys(cfg.Agents))
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

// gaugesByEndpoint estimates how endpoints count tokens. Agents with the same endpoint share a
// gauge.
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

// toolsOf returns the gateway's tools for an agent. Models and programs have all of them unless the
// configuration lists some.
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

// outsideOf returns what of an agent is text from outside. The gateway sees the steps of a model,
// and those of a program that reports them.
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

// isModel reports whether the agent is a model behind an endpoint: its only input is a
// conversation.
func isModel(a config.Agent) bool {
	return a.Runner == config.RunnerOpenAI || a.Runner == config.RunnerAnthropic
}

func nameOf(id string, a config.Agent) string {
	return cmp.Or(a.Name, id)
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

// buildACP returns an agent that speaks ACP: a program, or a preset. A preset that is not installed
// is accepted: its turns fail with that error, and it can be installed later.
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

// retries maps the configured number, where 0 means no retries, to the runners' number, where a
// negative one does.
func retries(n int) int {
	return cmp.Or(n, -1)
}

// modelTransport returns a connection pool for one agent, so that a blocked endpoint does not delay
// other agents.
func modelTransport() http.RoundTripper {
	t := &http.Transport{
		Proxy: proxyOf, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
	return t
}

// proxyOf returns the proxy of a request: the one of HTTPS_PROXY or HTTP_PROXY, otherwise that of
// ALL_PROXY, which most programs use and net/http does not; in both cases. NO_PROXY applies to all
// of them.
func proxyOf(r *http.Request) (*url.URL, error) {
	if u, err := http.ProxyFromEnvironment(r); u != nil || err != nil {
		return u, err
	}
	return proxyFor(r.URL, os.Getenv) //nolint:forbidigo // beside http.ProxyFromEnvironment, which reads the same environment
}

// proxyFor returns the proxy of ALL_PROXY for an address, nil if a variable of its scheme or
// NO_PROXY is responsible, or if the host is this one.
func proxyFor(to *url.URL, env func(string) string) (*url.URL, error) {
	either := func(name string) string { return cmp.Or(env(name), env(strings.ToLower(name))) }
	all := either("ALL_PROXY")
	if all == "" || either(strings.ToUpper(to.Scheme)+"_PROXY") != "" || to.Hostname() == "localhost" {
		return nil, nil // as http.Transport.Proxy wants it
	}
	if ip, err := netip.ParseAddr(to.Hostname()); err == nil && ip.IsLoopback() || bypassed(to, either("NO_PROXY")) {
		return nil, nil // as above
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

// bypassed reports whether NO_PROXY names a host: by its address, its network, its name or a
// domain, with or without the port, or all by *.
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

// pickModels replaces the model auto by the first model that the endpoint of the agent lists.
func pickModels(ctx context.Context, agents map[string]config.Agent, log *slog.Logger) error {
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		a := agents[id]
		if a.Runner != config.RunnerOpenAI || a.Model != config.ModelAuto {
			continue
		}
		bound, cancel := context.WithTimeout(ctx, probeTime)
		model, err := firstModel(bound, a)
		cancel()
		if err != nil {
			return fmt.Errorf("agent %s: choosing a model: %w", id, err)
		}
		log.InfoContext(ctx, "the first model of the endpoint answers; name another as the agent's model", "agent", id, "model", model)
		a.Model = model
		agents[id] = a
	}
	return nil
}

// firstModel is the first model in the list of an endpoint.
func firstModel(ctx context.Context, a config.Agent) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(a.BaseURL, "/")+"/models", nil)
	if err != nil {
		return "", fmt.Errorf("reading base_url: %w", err)
	}
	if a.APIKey.IsSet() {
		req.Header.Set("Authorization", "Bearer "+a.APIKey.Reveal())
	}
	resp, err := roundTrip(req)
	if err != nil {
		return "", fmt.Errorf("%s does not answer; start it, or name a model: %w", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list modelList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list); err != nil || len(list.Data) == 0 {
		if req.URL.Port() == ollamaPort {
			return "", fmt.Errorf("%s has no model yet; run: ollama pull llama3.2", req.URL.Host)
		}
		return "", fmt.Errorf("%s lists no model (%s); name one", req.URL.Host, resp.Status)
	}
	return list.Data[0].ID, nil
}

// serversOf returns the MCP servers that agents name, sorted by name.
func serversOf(cfg config.Config, reaper *process.Reaper) []external.Config {
	list := make([]external.Config, 0, len(cfg.MCP.Servers))
	for _, name := range slices.Sorted(maps.Keys(cfg.MCP.Servers)) {
		s := cfg.MCP.Servers[name]
		if !usedServer(cfg, name) {
			continue
		}
		list = append(list, external.Config{
			Name: name, Command: s.Command, Env: s.Env, Dir: s.Dir, URL: s.URL, Token: secret.New(s.Token.Reveal()),
			Tools: s.Tools, ReadOnly: s.ReadOnly, CallTime: time.Duration(s.Timeout), Reaper: reaper,
		})
	}
	return list
}

// lanesOf returns the configured lanes, sorted by name.
func lanesOf(cfg config.Config) []scheduler.Lane {
	limits := cfg.Lanes.Map()
	lanes := make([]scheduler.Lane, 0, len(limits))
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		lanes = append(lanes, scheduler.Lane{Name: name, Limit: limits[name]})
	}
	return lanes
}

// queueOf maps the configured queue of an agent on a channel to the rules of its sessions.
func queueOf(cfg config.Config) func(agent, channel, kind string) scheduler.Settings {
	return func(agent, channel, kind string) scheduler.Settings {
		q := cfg.QueueFor(agent, channel)
		s := scheduler.Settings{
			Mode: scheduler.QueueMode(q.Mode), Debounce: millis(q.DebounceMs), DebounceMax: millis(q.DebounceMaxMs),
			BatchMessages: q.DebounceMaxMessages, BatchBytes: q.DebounceMaxBytes, MaxConcurrent: q.MaxConcurrent,
			Cap: q.Cap, DropNew: chat.DropPolicy(q.Drop) == chat.DropNew,
		}
		if q.DebounceMs == 0 {
			s.Debounce, s.DebounceMax = -1, 0 // no debounce
		}
		if kind == "group" {
			s.MaxConcurrent = q.GroupMaxConcurrent
		}
		return s
	}
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// replicaName returns the name of this process in lists: the setting cluster.node_id, or a name
// derived from the host name.
func replicaName(set string) string {
	if set != "" {
		return set
	}
	host, err := os.Hostname()
	if err != nil {
		host = "laneway"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// usageConfig returns the prices and budgets of agents.
func (p *Process) usageConfig() usage.Config {
	out := usage.Config{Budgets: budgetsOf(p.cfg.Budgets), Prices: map[string]usage.Price{}, Models: map[string]string{}}
	for id, a := range p.cfg.Agents {
		input, output, cached := a.Price.Amounts()
		out.Prices[id] = usage.Price{Input: usage.MoneyOf(input), Output: usage.MoneyOf(output), Cached: usage.MoneyOf(cached)}
		out.Models[id] = a.Model
	}
	return out
}

func budgetsOf(b config.Budgets) usage.Budgets {
	limit := func(one config.Budget) usage.Limit {
		return usage.Limit{Tokens: int64(one.Tokens), Cost: usage.MoneyOf(one.Money)}
	}
	return usage.Budgets{Currency: b.Currency, Turn: limit(b.Turn), Job: limit(b.Job), Principal: limit(b.Principal), Day: limit(b.Day)}
}
