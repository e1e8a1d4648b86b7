package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"laneway/internal/secret"
)

// Runner names of [Agent.Runner].
const (
	RunnerEcho      = "echo"
	RunnerCommand   = "command"
	RunnerOpenAI    = "openai"
	RunnerAnthropic = "anthropic"
	RunnerHTTP      = "http"
	RunnerACP       = "acp"
)

// Addresses of the two providers, used when an agent names no address.
const (
	OpenAIURL    = "https://api.openai.com/v1"
	AnthropicURL = "https://api.anthropic.com"
)

// Agent answers the messages of a session. A setting that its runner does not have is an error,
// because it would have no effect.
type Agent struct {
	// Runner is echo, command, acp, http, openai or anthropic.
	Runner string `yaml:"runner"`
	// Name is how users see the agent. Default: the id.
	Name string `yaml:"name"`
	// Timeout is the time limit of one turn, 1s to 1d. Default 10m.
	Timeout Duration `yaml:"timeout"`
	// Queue overrides the queue settings for sessions of this agent.
	Queue QueueOverride `yaml:"queue"`
	// System is the system prompt (openai, anthropic).
	System string `yaml:"system"`
	// OutputLimit is the longest answer in bytes, at least 1024. Default 1048576.
	OutputLimit int `yaml:"output_limit"`
	// Preset is a coding agent that laneway knows: claude, codex, gemini, opencode, qwen, copilot
	// or openclaw (acp). It replaces runner and command.
	Preset string `yaml:"preset"`
	// EnvPass are variables of the gateway that the program gets: NAME or PREFIX_* (command, acp).
	// It always gets PATH, HOME, TZ, the locale, proxies and certificates.
	EnvPass []string `yaml:"env_pass"`
	// Env are additional variables of the program (command, acp).
	Env map[string]string `yaml:"env"`

	// Delay is the time before the answer, ChunkDelay the time between chunks of Chunk characters
	// (echo). Default 0; Chunk 0 = in one chunk.
	Delay      Duration `yaml:"delay"`
	ChunkDelay Duration `yaml:"chunk_delay"`
	Chunk      int      `yaml:"chunk"`
	// FailWith makes every turn fail with this reason (echo).
	FailWith string `yaml:"fail_with"`
	// Script lets messages such as `sleep 2s` and `fail` control the echo.
	Script bool `yaml:"script"`

	// Command is the program and its arguments (command, acp). With command, laneway replaces
	// {session}, {message}, {run} and {agent} in them.
	Command []string `yaml:"command"`
	// Input is what the program reads: text or json (command). Default text.
	Input string `yaml:"input"`
	// Output is how the program answers: auto, text, jsonl, or the JSON lines of claude or codex
	// (command). Default auto: the first line decides between text and jsonl.
	Output string `yaml:"output"`
	// Dir is the program's working directory, absolute (command, acp). With {session} in it, each
	// session has a separate directory. Default: the directory of the gateway.
	Dir string `yaml:"dir"`
	// Dirs are at most 20 additional directories, from which you choose one in a conversation with
	// /dir (command, acp). They have the form of Dir, which must be set.
	Dirs []string `yaml:"dirs"`

	// IdleTimeout is how long the process of a session waits for the next turn, 1s to 1d (acp).
	// Default 10m.
	IdleTimeout Duration `yaml:"idle_timeout"`
	// MaxProcesses is how many processes of the agent run at the same time, 1 to 1000 (acp).
	// Default 16.
	MaxProcesses int `yaml:"max_processes"`
	// QuestionTimeout is how long you have to answer a permission request, 1s to 10m (acp). Then
	// the answer is no. Default 5m.
	QuestionTimeout Duration `yaml:"question_timeout"`

	// URL is the address of an agent behind HTTP, without a query: each turn is one signed POST to
	// it (http).
	URL string `yaml:"url"`
	// Secret signs the requests, 32 characters or more (http). SecretEnv or SecretFile name a
	// variable or file that has it.
	Secret     secret.Secret `yaml:"secret"`
	SecretEnv  string        `yaml:"secret_env"`
	SecretFile string        `yaml:"secret_file"`

	// BaseURL is the address of the endpoint. Default: the provider's own.
	BaseURL string `yaml:"base_url"`
	// Model is the name of the model, as in the API of the endpoint; auto is the first model that
	// the endpoint lists (openai).
	Model string `yaml:"model"`
	// APIKey is the key of the endpoint; APIKeyEnv or APIKeyFile name a variable or file that has
	// it. For the provider's own address, APIKeyEnv is OPENAI_API_KEY or ANTHROPIC_API_KEY by
	// default. laneway sends a key to another address only if you set it here.
	APIKey     secret.Secret `yaml:"api_key"`
	APIKeyEnv  string        `yaml:"api_key_env"`
	APIKeyFile string        `yaml:"api_key_file"`
	// ContextWindow is the size of the context window in tokens, at least 512. Default 32768,
	// 200000 for anthropic.
	ContextWindow int `yaml:"context_window"`
	// MaxTokens is how many tokens an answer may have. Default 0 = the endpoint's default (openai),
	// 4096 (anthropic).
	MaxTokens int `yaml:"max_tokens"`
	// Temperature 0 to 2 and TopP 0 to 1. Default: the endpoint's default.
	Temperature *float64 `yaml:"temperature"`
	TopP        *float64 `yaml:"top_p"`
	// Stop ends an answer at the first of these strings.
	Stop []string `yaml:"stop"`
	// FirstByteTimeout and SilenceTimeout limit the wait for the endpoint, 1s to 1h (http, openai,
	// anthropic). Default 60s each.
	FirstByteTimeout Duration `yaml:"first_byte_timeout"`
	SilenceTimeout   Duration `yaml:"silence_timeout"`
	// Retries is how often a failed request is repeated before any output was shown, 0 to 10 (http,
	// openai, anthropic). Default 3.
	Retries int `yaml:"retries"`
	// Price of a million tokens (openai, anthropic, command, http).
	Price Price `yaml:"price"`
	// Tools are the tools of laneway that the model or the program may call (openai, anthropic,
	// command, acp): remind, cron, message, sessions, history_search, send_file, spawn, delegate,
	// or off. Default: all of them, except in turns of /v1 and of hooks, which have only the tools
	// that you list here.
	Tools ToolNames `yaml:"tools"`
	// Outside is when a turn counts as having read text from outside, after which tools that create
	// or send ask you (acp, command, http): always, never or auto. With auto, it counts when the
	// agent fetches, searches, executes, or reads outside of its directory, or uses an unknown tool
	// (acp, and command with the output claude or codex). With auto, the answers of command and
	// http also count for the turns that delegate to them. Default auto.
	Outside string `yaml:"outside"`
	// MCP are the servers of mcp.servers whose tools it may call in every turn (openai, anthropic,
	// command, acp). Default none.
	MCP []string `yaml:"mcp"`
}

// toolNames returns the tools of the gateway.
func toolNames() []string {
	return []string{"remind", "cron", "message", "sessions", "history_search", "send_file", "spawn", "delegate"}
}

// ToolNames is a list of tools, or the word off.
type ToolNames []string

// toolsOff is the value for no tools.
const toolsOff = "off"

// Off reports whether the agent has no tools.
func (t *ToolNames) Off() bool { return len(*t) == 1 && (*t)[0] == toolsOff }

func (t *ToolNames) setWord(word string) bool {
	if word != toolsOff {
		return false
	}
	*t = ToolNames{toolsOff}
	return true
}

const (
	defaultOutputLimit = 1 << 20
	maxOutputLimit     = 64 << 20
)

// newAgent returns an agent with the defaults that do not depend on the runner.
func newAgent() Agent {
	return Agent{
		Timeout: 10 * Duration(minute), OutputLimit: defaultOutputLimit, Input: "text", Output: "auto", Outside: "auto",
		FirstByteTimeout: Duration(minute), SilenceTimeout: Duration(minute), Retries: 3,
		IdleTimeout: 10 * Duration(minute), MaxProcesses: 16, QuestionTimeout: 5 * Duration(minute),
	}
}

// fill adds the defaults that depend on the id and on the runner.
func (a *Agent) fill(id string) {
	a.Name = cmp.Or(a.Name, id)
	if a.Preset != "" && a.Runner == "" {
		a.Runner = RunnerACP
	}
	window := 32_768
	switch a.Runner {
	case RunnerOpenAI:
		a.fillModel(OpenAIURL, openAIKey)
	case RunnerAnthropic:
		window = 200_000
		a.fillModel(AnthropicURL, anthropicKey)
		a.MaxTokens = cmp.Or(a.MaxTokens, 4096)
	}
	a.ContextWindow = cmp.Or(a.ContextWindow, window)
}

func (a *Agent) fillModel(baseURL, keyEnv string) {
	a.BaseURL = cmp.Or(a.BaseURL, baseURL)
	keyGiven := a.APIKey.IsSet() || a.APIKeyEnv != "" || a.APIKeyFile != ""
	if strings.TrimSuffix(a.BaseURL, "/") == baseURL && !keyGiven {
		a.APIKeyEnv = keyEnv
	}
}

// ParseShortAgent parses the short form of an agent: the name of a preset, `echo`,
// `command:PROGRAM ARG…`, `acp:PROGRAM ARG…`, `openai:MODEL@BASE_URL` (without an address: OpenAI's
// own), `anthropic:MODEL`, or `ENDPOINT:MODEL` with the name of an endpoint. Arguments are split at
// spaces. Quoting is supported only in the file.
func ParseShortAgent(short string) (Agent, error) {
	a := newAgent()
	kind, rest, _ := strings.Cut(strings.TrimSpace(short), ":")
	if _, known := PresetNamed(kind); known && rest == "" {
		a.Runner, a.Preset = RunnerACP, kind
		return a, nil
	}
	if of, known, err := endpointAgent(a, kind, rest); known {
		return of, err
	}
	a.Runner = kind
	switch kind {
	case RunnerEcho:
		if rest != "" {
			return Agent{}, fmt.Errorf("takes nothing after echo, is %q", short)
		}
	case RunnerCommand, RunnerACP:
		words, err := splitWords(rest)
		if err != nil {
			return Agent{}, err
		}
		if a.Command = words; len(words) == 0 {
			return Agent{}, fmt.Errorf("needs a program: %s:PROGRAM ARG…", kind)
		}
	case RunnerOpenAI, RunnerAnthropic:
		a.Model, a.BaseURL = cutModel(rest)
		if a.Model == "" {
			return Agent{}, fmt.Errorf("needs a model: %s:MODEL or %s:MODEL@BASE_URL", kind, kind)
		}
	default:
		return Agent{}, fmt.Errorf("must be %s, echo, command:PROGRAM ARG…, acp:PROGRAM ARG…, openai:MODEL@BASE_URL, anthropic:MODEL, or MODEL after one of %s with a colon, is %q",
			strings.Join(presetNames(), ", "), endpointNames(), short)
	}
	return a, nil
}

// cutModel splits at the @ before an address, because model names may contain an @.
func cutModel(s string) (model, baseURL string) {
	if i := strings.LastIndex(s, "@http"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

func (a *Agent) validate(at at, id string, global Queue) {
	if !agentRule.MatchString(id) {
		at.addf("is not an agent id; use lower-case letters, digits, dashes and underscores, at most 64")
	}
	if a.Runner == "" {
		at.key("runner").addf("is needed; use echo, command, acp, http, openai or anthropic")
	} else {
		at.oneOf("runner", a.Runner, RunnerEcho, RunnerCommand, RunnerACP, RunnerHTTP, RunnerOpenAI, RunnerAnthropic)
	}
	at.durationBetween("timeout", a.Timeout, Duration(second), Duration(day))
	at.between("output_limit", a.OutputLimit, 1024, maxOutputLimit)
	at.between("context_window", a.ContextWindow, 512, noUpperBound)
	a.Queue.apply(global).validate(at.key("queue"))
	if a.Tools != nil && len(a.Tools) == 0 {
		at.key("tools").addf("names no tool; use off for none")
	}
	for _, name := range a.Tools {
		if !a.Tools.Off() {
			at.oneOf("tools", name, toolNames()...)
		}
	}
	at.oneOf("outside", a.Outside, "auto", "always", "never")
	for _, pattern := range a.EnvPass {
		validatePass(at.key("env_pass"), pattern)
	}
	a.validateDirs(at.key("dirs"))
	a.Price.validate(at.key("price"))
	a.validateRunner(at)
	a.refuseForeign(at)
}

func (a *Agent) validateDirs(at at) {
	if len(a.Dirs) > 0 && a.Dir == "" {
		at.addf("needs dir, which conversations use that have chosen none")
	}
	if len(a.Dirs) > maxDirs {
		at.addf("has %d directories, at most %d are possible", len(a.Dirs), maxDirs)
	}
	for i, dir := range a.Dirs {
		switch {
		case !filepath.IsAbs(dir):
			at.addf("%q is not absolute", dir)
		case dir == a.Dir || slices.Contains(a.Dirs[:i], dir):
			at.addf("%q is named twice", dir)
		}
	}
}

// maxDirs is how many directories a conversation may choose from in addition to the agent's own.
const maxDirs = 20

func (a *Agent) validateRunner(at at) {
	switch a.Runner {
	case RunnerEcho:
		at.durationBetween("delay", a.Delay, 0, Duration(hour))
		at.durationBetween("chunk_delay", a.ChunkDelay, 0, Duration(minute))
		at.between("chunk", a.Chunk, 0, noUpperBound)
	case RunnerCommand:
		if len(a.Command) == 0 || a.Command[0] == "" {
			at.key("command").addf("is needed: [program, argument, …]")
		}
		at.oneOf("input", a.Input, "text", "json")
		at.oneOf("output", a.Output, "auto", "text", "jsonl", "claude", "codex")
	case RunnerACP:
		switch {
		case a.Preset != "" && len(a.Command) > 0:
			at.key("preset").addf("and command are both given; keep one of them")
		case a.Preset != "":
			at.oneOf("preset", a.Preset, presetNames()...)
		case len(a.Command) == 0 || a.Command[0] == "":
			at.key("command").addf("is needed: [program, argument, …], or preset: %s", strings.Join(presetNames(), ", "))
		}
		at.durationBetween("idle_timeout", a.IdleTimeout, Duration(second), Duration(day))
		at.between("max_processes", a.MaxProcesses, 1, 1000)
		at.durationBetween("question_timeout", a.QuestionTimeout, Duration(second), 10*Duration(minute))
	case RunnerHTTP:
		a.validateHTTP(at)
	case RunnerOpenAI, RunnerAnthropic:
		a.validateModel(at)
	}
}

func (a *Agent) validateHTTP(at at) {
	checkHTTPURL(at.key("url"), a.URL)
	if strings.ContainsAny(a.URL, "?#") {
		at.key("url").addf("must not have a query or a fragment")
	}
	a.validateWaits(at)
}

// validateWaits checks the timeouts of an endpoint.
func (a *Agent) validateWaits(at at) {
	at.between("retries", a.Retries, 0, 10)
	at.durationBetween("first_byte_timeout", a.FirstByteTimeout, Duration(second), Duration(hour))
	at.durationBetween("silence_timeout", a.SilenceTimeout, Duration(second), Duration(hour))
}

func (a *Agent) validateModel(at at) {
	if a.Model == "" {
		at.key("model").addf("is needed")
	}
	checkHTTPURL(at.key("base_url"), a.BaseURL)
	at.between("max_tokens", a.MaxTokens, 0, noUpperBound)
	a.validateWaits(at)
	if a.Temperature != nil && (*a.Temperature < 0 || *a.Temperature > 2) {
		at.key("temperature").addf("must be between 0 and 2, is %g", *a.Temperature)
	}
	if a.TopP != nil && (*a.TopP < 0 || *a.TopP > 1) {
		at.key("top_p").addf("must be between 0 and 1, is %g", *a.TopP)
	}
	if a.MaxTokens >= a.ContextWindow && a.ContextWindow > 0 {
		at.key("max_tokens").addf("must be smaller than context_window (%d), is %d", a.ContextWindow, a.MaxTokens)
	}
}

// refuseForeign reports settings that belong to another runner.
func (a *Agent) refuseForeign(at at) {
	foreign := func(name string, given bool, runners ...string) {
		for _, r := range runners {
			given = given && a.Runner != r
		}
		if given && a.Runner != "" {
			at.key(name).addf("is a setting of the runner %s, not of %s", strings.Join(runners, " and "), a.Runner)
		}
	}
	foreign("command", len(a.Command) > 0, RunnerCommand, RunnerACP)
	foreign("preset", a.Preset != "", RunnerACP)
	foreign("env_pass", len(a.EnvPass) > 0, RunnerCommand, RunnerACP)
	foreign("env", len(a.Env) > 0, RunnerCommand, RunnerACP)
	foreign("dir", a.Dir != "", RunnerCommand, RunnerACP)
	foreign("dirs", len(a.Dirs) > 0, RunnerCommand, RunnerACP)
	foreign("input", a.Input != "text", RunnerCommand)
	foreign("output", a.Output != "auto", RunnerCommand)
	foreign("outside", a.Outside != "auto", RunnerACP, RunnerCommand, RunnerHTTP)
	foreign("url", a.URL != "", RunnerHTTP)
	foreign("secret", a.Secret.IsSet(), RunnerHTTP)
	foreign("delay", a.Delay != 0, RunnerEcho)
	foreign("chunk_delay", a.ChunkDelay != 0, RunnerEcho)
	foreign("chunk", a.Chunk != 0, RunnerEcho)
	foreign("fail_with", a.FailWith != "", RunnerEcho)
	foreign("script", a.Script, RunnerEcho)
	foreign("base_url", a.BaseURL != "", RunnerOpenAI, RunnerAnthropic)
	foreign("model", a.Model != "", RunnerOpenAI, RunnerAnthropic)
	foreign("api_key", a.APIKey.IsSet(), RunnerOpenAI, RunnerAnthropic)
	foreign("system", a.System != "", RunnerOpenAI, RunnerAnthropic)
	foreign("tools", len(a.Tools) > 0, RunnerOpenAI, RunnerAnthropic, RunnerCommand, RunnerACP)
	foreign("price", a.Price != Price{}, RunnerOpenAI, RunnerAnthropic, RunnerCommand, RunnerHTTP)
	foreign("mcp", len(a.MCP) > 0, RunnerOpenAI, RunnerAnthropic, RunnerCommand, RunnerACP)
}

// MCP are the MCP servers whose tools agents may call. An agent lists the servers that it uses.
type MCP struct {
	// Servers by name. The name is the prefix of the names of their tools: files_read.
	Servers map[string]MCPServer `yaml:"servers"`
}

// MCPServer is one server: a program or an address.
type MCPServer struct {
	// Command is the program and its arguments. It communicates over standard input and output.
	Command []string `yaml:"command"`
	// Env are additional variables of the program, Dir its working directory. Default of Dir: the
	// directory of the gateway.
	Env map[string]string `yaml:"env"`
	Dir string            `yaml:"dir"`
	// URL of a server with the Streamable HTTP transport, instead of Command.
	URL string `yaml:"url"`
	// Token is the bearer token for the URL. TokenEnv or TokenFile name a variable or file that has
	// it.
	Token     secret.Secret `yaml:"token"`
	TokenEnv  string        `yaml:"token_env"`
	TokenFile string        `yaml:"token_file"`
	// Tools are the tools that agents may call, by the server's names. Agents do not see others.
	Tools []string `yaml:"tools"`
	// ReadOnly are those tools that neither create nor send. All others ask you in the same turns
	// as laneway's own tools, and are refused in turns of jobs.
	ReadOnly []string `yaml:"read_only"`
	// Timeout is the time limit of one call, 1s to 55s. Default 30s.
	Timeout Duration `yaml:"timeout"`
}

// serverName is shorter than other names, because it is part of the names of tools, whose length
// models limit.
const serverName = `^[a-z0-9][a-z0-9-]{0,15}$`

func (c Config) checkMCP(root at) {
	for _, name := range sortedNames(c.MCP.Servers) {
		c.MCP.Servers[name].check(root.key("mcp").key("servers").key(name), name)
	}
	for _, id := range sortedNames(c.Agents) {
		for _, name := range c.Agents[id].MCP {
			if _, known := c.MCP.Servers[name]; !known {
				root.key("agents").key(id).key("mcp").addf("names %q, which is not in mcp.servers", name)
			}
		}
	}
}

func (s MCPServer) check(at at, name string) {
	if fits, err := regexp.MatchString(serverName, name); err != nil || !fits {
		at.addf("is not the name of a server; use lower-case letters, digits and dashes, at most 16")
	}
	switch {
	case (len(s.Command) > 0) == (s.URL != ""):
		at.addf("needs either command or url")
	case s.URL != "":
		if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			at.key("url").addf("must look like https://host/path")
		}
	case s.Token.IsSet():
		at.key("token").addf("is for a url; give the program its secrets in env")
	}
	if len(s.Tools) == 0 {
		at.key("tools").addf("names no tool; list those that agents may call")
	}
	for _, one := range s.Tools {
		if full := name + "_" + one; slices.Contains(toolNames(), full) {
			at.key("tools").addf("names %q: %s is a tool of the gateway; use another name for the server", one, full)
		}
	}
	for _, one := range s.ReadOnly {
		if !slices.Contains(s.Tools, one) {
			at.key("read_only").addf("names %q, which is not in tools", one)
		}
	}
	if s.Timeout != 0 {
		at.durationBetween("timeout", s.Timeout, Duration(second), 55*Duration(second))
	}
}
