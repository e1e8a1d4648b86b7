package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environ returns a lookup function for pairs of name and value.
func environ(pairs ...string) func(string) (string, bool) {
	values := map[string]string{"HOME": "/home/user"}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

// parse parses a configuration from text alone, without environment, other files or flags. name is
// the name of the file in faults.
func parse(name string, text []byte) (Config, error) {
	l := &layers{sources: map[string]Source{}}
	cfg := Default()
	l.file(&cfg, name, text)
	loaded := &Loaded{sources: l.sources}
	loaded.agents(l, &cfg, func(string) (string, bool) { return "", false })
	fill(&cfg)
	l.addChecks(loaded.place(cfg.check()))
	return cfg, l.faults.err()
}

func TestANameThatIsListenedOnIsAName(t *testing.T) {
	t.Parallel()
	c := Config{AllowedHosts: []string{"a.example"}, Listen: []string{"Box.lan:18790", "127.0.0.1:1", "[::1]:2", ":3", "0.0.0.0:4", "localhost:5"}}
	if got, want := c.Hosts(), []string{"a.example", "Box.lan", "localhost"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEachBadFileIsRefusedWithItsFault(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("got %d bad files (%v), want all of them", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			want := strings.TrimPrefix(first, "# want: ")
			_, err = Load(Options{File: file, LookupEnv: environ()})
			var faults FaultsError
			if !errors.As(err, &faults) {
				t.Fatalf("got %v, want faults", err)
			}
			if !slices.Contains(faults.Lines(), want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(faults.Lines(), "\n"), want)
			}
			if faults.ExitCode() != 78 {
				t.Errorf("exit code %d, want 78", faults.ExitCode())
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "canary") {
				t.Errorf("a secret is in the fault: %s", err)
			}
		})
	}
}

func TestEachGoodFileIsAccepted(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("got %d good files (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if _, err := Load(Options{File: file, LookupEnv: environ()}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parse("x.yaml", []byte("lanes: {main: 0, cron: abc}\nqueu: {}\nqueue: {cap: -1, drop: middle}\n"))
	var faults FaultsError
	if !errors.As(err, &faults) || len(faults) != 5 {
		t.Fatalf("got %d faults, want 5:\n%v", len(faults), err)
	}
}

func TestDefaultsAreValidAndNeedNothing(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Config
	if c.Agents["main"].Runner != RunnerEcho || c.DefaultAgent != "main" || c.Data != "/home/user/.local/share/laneway" {
		t.Errorf("got agent %+v, default %q, data %q", c.Agents["main"], c.DefaultAgent, c.Data)
	}
	if len(loaded.Notes) != 1 || !strings.Contains(loaded.Notes[0], "for a real agent") {
		t.Errorf("notes %q do not name a real agent", loaded.Notes)
	}
}

func TestLayersLieOnEachOther(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	if err := os.WriteFile(file, []byte("queue: {cap: 2, debounce_ms: 5}\nlog: {level: warn}\nlanes: {main: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Options{
		File:      file,
		LookupEnv: environ("LANEWAY_QUEUE_CAP", "3", "LANEWAY_LOG_LEVEL", "error"),
		Flags:     []Setting{{Path: "log.level", Flag: "--log-level", Values: []string{"debug"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Config
	if c.Queue.Cap != 3 || c.Queue.DebounceMs != 5 || c.Log.Level != "debug" || c.Lanes.Main != 7 || c.Lanes.Team != 100 {
		t.Errorf("got %+v %+v %+v", c.Queue, c.Log, c.Lanes)
	}
	for path, want := range map[string]string{
		"queue.cap": "LANEWAY_QUEUE_CAP", "queue.debounce_ms": "laneway.yaml:1", "log.level": "--log-level", "lanes.team": "default",
	} {
		if got := loaded.Source(path).String(); got != want {
			t.Errorf("source of %s: got %q, want %q", path, got, want)
		}
	}
}

func TestATokenAloneIsABot(t *testing.T) {
	t.Parallel()
	load := func(file string, env map[string]string) (*Loaded, error) {
		o := Options{LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
		if file != "" {
			o.File = filepath.Join(t.TempDir(), "laneway.yaml")
			if err := os.WriteFile(o.File, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return Load(o)
	}
	names := func(bots []Telegram) (out []string) {
		for _, b := range bots {
			out = append(out, b.Account+"="+b.Token.Reveal()+" "+b.Access+" "+b.Mode)
		}
		return out
	}
	accounts := "channels: {telegram: {accounts: {work: {token_env: WORK}, family: {token: '2:b', access: allowlist}, off: {token: '3:c', enabled: false}}}}"
	for name, row := range map[string]struct {
		file string
		env  map[string]string
		want []string
	}{
		"nothing":               {"", map[string]string{"HOME": "/x"}, nil},
		"the variable alone":    {"", map[string]string{"HOME": "/x", "TELEGRAM_TOKEN": "1:a"}, []string{"default=1:a pairing polling"}},
		"the file is first":     {"channels: {telegram: {token: '9:z'}}", map[string]string{"HOME": "/x", "TELEGRAM_TOKEN": "1:a"}, []string{"default=9:z pairing polling"}},
		"switched off":          {"channels: {telegram: {enabled: false}}", map[string]string{"HOME": "/x", "TELEGRAM_TOKEN": "1:a"}, nil},
		"accounts":              {accounts, map[string]string{"HOME": "/x", "TELEGRAM_TOKEN": "1:a", "WORK": "4:d"}, []string{"family=2:b allowlist polling", "work=4:d pairing polling"}},
		"setting of an account": {accounts, map[string]string{"HOME": "/x", "WORK": "4:d", "LANEWAY_CHANNELS_TELEGRAM_ACCOUNTS_WORK_ACCESS": "open"}, []string{"family=2:b allowlist polling", "work=4:d open polling"}},
	} {
		loaded, err := load(row.file, row.env)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := names(loaded.Config.Channels.Telegram.Bots()); !slices.Equal(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
	for file, want := range map[string]string{
		"channels: {telegram: {accounts: {work: {token: '2:b', account: other}}}}":              "channels.telegram.accounts.work.account belongs to channels.telegram",
		"channels: {telegram: {accounts: {work: {token: '2:b', mode: carrier}}}}":               "channels.telegram.accounts.work.mode",
		"channels: {telegram: {token: '1:a', account: work, accounts: {work: {token: '2:b'}}}}": "is the name of the first bot too",
		"channels: {telegram: {accounts: {work: {token: '2:b', agent: absent}}}}":               "channels.telegram.accounts.work.agent names no agent",
	} {
		if _, err := load(file, map[string]string{"HOME": "/x"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		env   []string
		check func(Config) bool
	}{
		{"short name of a lane", []string{"LANEWAY_LANE_MAIN", "4"}, func(c Config) bool { return c.Lanes.Main == 4 }},
		{"older name of a lane", []string{"GOCLAW_LANE_CRON", "5"}, func(c Config) bool { return c.Lanes.Cron == 5 }},
		{"own name before the older", []string{"GOCLAW_LANE_TEAM", "5", "LANEWAY_LANE_TEAM", "6"}, func(c Config) bool { return c.Lanes.Team == 6 }},
		{"long name of a lane", []string{"LANEWAY_LANES_SUBAGENT", "9"}, func(c Config) bool { return c.Lanes.Subagent == 9 }},
		{"limit", []string{"LANEWAY_LIMITS_CRON_WRITES", "0"}, func(c Config) bool { return c.Limits.CronWrites == 0 }},
		{"database", []string{"LANEWAY_DATABASE_URL", "sqlite:/x/y.db"}, func(c Config) bool { p, _ := c.Database.SQLitePath(); return p == "/x/y.db" }},
		{"list with commas", []string{"LANEWAY_LISTEN", "127.0.0.1:1, [::1]:2"}, func(c Config) bool { return slices.Equal(c.Listen, []string{"127.0.0.1:1", "[::1]:2"}) }},
		{"list as YAML", []string{"LANEWAY_ROLES", `["cron", "worker"]`}, func(c Config) bool { return slices.Equal(c.Roles, []string{"cron", "worker"}) }},
		{"empty list", []string{"LANEWAY_TRUSTED_PROXIES", "[]"}, func(c Config) bool { return len(c.TrustedProxies) == 0 }},
		{"blank number", []string{"LANEWAY_LANE_TEAM", "", "GOCLAW_LANE_TEAM", "7"}, func(c Config) bool { return c.Lanes.Team == 7 }},
		{"blank list", []string{"LANEWAY_LISTEN", " "}, func(c Config) bool { return slices.Equal(c.Listen, []string{DefaultListen}) }},
		{"blank database", []string{"LANEWAY_DATABASE_URL", ""}, func(c Config) bool { return !c.Database.IsSet() }},
		{"blank file", []string{"LANEWAY_CONFIG", ""}, func(c Config) bool { return c.Lanes.Main == 30 }},
		{"blank runner", []string{"LANEWAY_AGENTS_MAIN_RUNNER", ""}, func(c Config) bool { return c.Agents["main"].Runner == RunnerEcho }},
		{"switch", []string{"LANEWAY_DASHBOARD", "off"}, func(c Config) bool { return !c.Dashboard }},
		{"other switch", []string{"LANEWAY_BEHIND_TLS_PROXY", "true"}, func(c Config) bool { return c.BehindTLSProxy }},
		{"duration", []string{"LANEWAY_CRON_RETENTION", "7d"}, func(c Config) bool { return c.Cron.Retention == Duration(7*24*time.Hour) }},
		{"pointer", []string{"LANEWAY_CHANNELS_WEB_DEBOUNCE_MS", "40"}, func(c Config) bool { return *c.Channels.Web.DebounceMs == 40 }},
		{"ids", []string{"LANEWAY_CHANNELS_TELEGRAM_ALLOW", "17,-4"}, func(c Config) bool { return slices.Equal(c.Channels.Telegram.Allow, []ID{17, -4}) }},
		{"short agent", []string{"LANEWAY_AGENT", "command:cat -u"}, func(c Config) bool { return slices.Equal(c.Agents["main"].Command, []string{"cat", "-u"}) }},
		{
			"agent by variables alone",
			[]string{"LANEWAY_AGENTS_MAIN_RUNNER", "openai", "LANEWAY_AGENTS_MAIN_MODEL", "m", "LANEWAY_AGENTS_MAIN_BASE_URL", "http://127.0.0.1:1/v1"},
			func(c Config) bool { return c.Agents["main"].Model == "m" },
		},
		{
			"model of a detected agent",
			[]string{"OPENAI_API_KEY", "sk-1", "LANEWAY_AGENTS_MAIN_MODEL", "other"},
			func(c Config) bool { a := c.Agents["main"]; return a.Model == "other" && a.APIKey.Reveal() == "sk-1" },
		},
		{"detected Ollama", []string{"OLLAMA_HOST", "0.0.0.0"}, func(c Config) bool { return c.Agents["main"].BaseURL == "http://127.0.0.1:11434/v1" }},
		{"detected Anthropic", []string{"ANTHROPIC_API_KEY", "sk-2"}, func(c Config) bool {
			return c.Agents["main"].BaseURL == AnthropicURL && c.Agents["main"].APIKey.IsSet()
		}},
		{"blank key is no key", []string{"OPENAI_API_KEY", " "}, func(c Config) bool { return c.Agents["main"].Runner == RunnerEcho }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			loaded, err := Load(Options{LookupEnv: environ(row.env...)})
			if err != nil {
				t.Fatal(err)
			}
			if !row.check(loaded.Config) {
				t.Errorf("%v has not the wanted effect: %+v", row.env, loaded.Config)
			}
		})
	}
}

func TestBadVariablesAreNamed(t *testing.T) {
	t.Parallel()
	rows := []struct{ name, value, want string }{
		{"LANEWAY_LANE_MAIN", "0", "LANEWAY_LANE_MAIN: lanes.main must be a positive whole number, is 0"},
		{"LANEWAY_LANE_MAIN", "-1", "LANEWAY_LANE_MAIN: lanes.main must be a positive whole number, is -1"},
		{"LANEWAY_LANE_MAIN", "abc", `LANEWAY_LANE_MAIN: lanes.main must be a whole number, is "abc"`},
		{"LANEWAY_TOKEN", "  ", "LANEWAY_TOKEN is set but empty; unset it or give a token"},
		{"LANEWAY_WRITE_TOKEN", "", "LANEWAY_WRITE_TOKEN is set but empty; unset it or give a token"},
		{"LANEWAY_READ_TOKEN", "", "LANEWAY_READ_TOKEN is set but empty; unset it or give a token"},
		{"LANEWAY_PASSWORD", "", "LANEWAY_PASSWORD is set but empty; unset it or give a password"},
		{"LANEWAY_DASHBOARD", "maybe", `LANEWAY_DASHBOARD: dashboard must be true or false, is "maybe"`},
		{"LANEWAY_QUEUE_CAP", "1e3", `LANEWAY_QUEUE_CAP: queue.cap must be a whole number, is "1e3"`},
		{"LANEWAY_CONFIG", "/nowhere/laneway.yaml", "configuration file /nowhere/laneway.yaml cannot be read: no such file or directory; name another with --config"},
		{"LANEWAY_TOKEN_FILE", "/nowhere/token", "token file /nowhere/token does not exist; make it: openssl rand -hex 32"},
		{"LANEWAY_CHANNELS_TELEGRAM_TOKEN_FILE", "/nowhere/t", "bot token file /nowhere/t does not exist; put the token into it that @BotFather gave you"},
		{"LANEWAY_CHANNELS_TELEGRAM_TOKEN_ENV", "NO_SUCH", "channels.telegram.token is to come from the variable NO_SUCH, which is not set"},
		{"LANEWAY_AGENT", "magic", `LANEWAY_AGENT: agent must be claude, codex, gemini, opencode, qwen, copilot, openclaw, echo, command:PROGRAM ARG…, acp:PROGRAM ARG…, openai:MODEL@BASE_URL, anthropic:MODEL, or MODEL after one of openrouter, groq, deepseek, gemini-api, mistral, xai, ollama, lmstudio, vllm with a colon, is "magic"`},
		{"LANEWAY_AGENT", "openai:gpt", "agents.main.api_key is to come from the variable OPENAI_API_KEY, which is not set"},
		{"LANEWAY_HOOKS", "", ""},
	}
	for _, row := range rows {
		t.Run(row.name+"="+row.value, func(t *testing.T) {
			t.Parallel()
			_, err := Load(Options{LookupEnv: environ(row.name, row.value)})
			if row.want == "" {
				if err != nil {
					t.Errorf("got %v, want no fault: it is no setting", err)
				}
				return
			}
			if err == nil || err.Error() != row.want {
				t.Errorf("got  %v\nwant %s", err, row.want)
			}
		})
	}
}

func TestAProviderKeyIsNotSentToAnotherAddress(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ("OPENAI_API_KEY", "sk-canary", "LANEWAY_AGENT", "openai:m@http://example.org/v1")})
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Config.Agents["main"].APIKey.IsSet() {
		t.Error("the key of OpenAI would go to example.org")
	}
}

// The user of the variable expects that provider to answer.
func TestAKeyThatNoAgentUsesIsNoted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		env  []string
		want string
	}{
		"another agent":      {[]string{"OPENAI_API_KEY", "sk-1", "LANEWAY_AGENT", "command:cat"}, "OPENAI_API_KEY is set, but no agent uses it: agent main is command, by LANEWAY_AGENT"},
		"another address":    {[]string{"OPENAI_API_KEY", "sk-1", "LANEWAY_AGENT", "openai:m@http://127.0.0.1:1/v1"}, "OPENAI_API_KEY is set, but no agent uses it: agent main is openai, by LANEWAY_AGENT"},
		"another provider":   {[]string{"OPENAI_API_KEY", "sk-1", "ANTHROPIC_API_KEY", "sk-2"}, "ANTHROPIC_API_KEY is set, but no agent uses it: agent main is openai, by OPENAI_API_KEY"},
		"Ollama elsewhere":   {[]string{"OLLAMA_HOST", "box", "LANEWAY_AGENT", "openai:m@http://127.0.0.1:11434/v1"}, "OLLAMA_HOST is set, but no agent uses it: agent main is openai, by LANEWAY_AGENT"},
		"the key is used":    {[]string{"OPENAI_API_KEY", "sk-1", "LANEWAY_AGENT", "openai:m"}, ""},
		"Ollama is used":     {[]string{"OLLAMA_HOST", "127.0.0.1", "LANEWAY_AGENT", "openai:m@http://127.0.0.1:11434/v1"}, ""},
		"the key is blank":   {[]string{"OPENAI_API_KEY", "", "LANEWAY_AGENT", "command:cat"}, ""},
		"the program has it": {[]string{"OPENAI_API_KEY", "sk-1", "LANEWAY_AGENT", "command:cat", "LANEWAY_AGENTS_MAIN_ENV", "{OPENAI_API_KEY: sk-1}"}, ""},
	} {
		loaded, err := Load(Options{LookupEnv: environ(row.env...)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		notes := slices.DeleteFunc(loaded.Notes, func(n string) bool { return !strings.Contains(n, "no agent uses it") })
		if got := strings.Join(notes, "; "); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

func TestShortAgents(t *testing.T) {
	t.Parallel()
	for short, want := range map[string]Agent{
		"echo":                                 {Runner: "echo"},
		"openai:llama@http://127.0.0.1:1/v1":   {Runner: "openai", Model: "llama", BaseURL: "http://127.0.0.1:1/v1"},
		"openai:org/m@2@https://x.example/v1":  {Runner: "openai", Model: "org/m@2", BaseURL: "https://x.example/v1"},
		"openai:gpt":                           {Runner: "openai", Model: "gpt"},
		"anthropic:claude":                     {Runner: "anthropic", Model: "claude"},
		"command:my-agent --session {session}": {Runner: "command", Command: []string{"my-agent", "--session", "{session}"}},
	} {
		got, err := ParseShortAgent(short)
		if err != nil {
			t.Errorf("%s: %v", short, err)
		}
		if got.Runner != want.Runner || got.Model != want.Model || got.BaseURL != want.BaseURL || !slices.Equal(got.Command, want.Command) {
			t.Errorf("%s: got %+v, want %+v", short, got, want)
		}
	}
	for _, short := range []string{"", "echo:x", "command:", "openai:", "openai:@http://x", "http://x"} {
		if a, err := ParseShortAgent(short); err == nil {
			t.Errorf("%q was taken as %+v", short, a)
		}
	}
}

func TestQueueSettingsAreMostParticularLast(t *testing.T) {
	t.Parallel()
	cfg, err := parse("x.yaml", []byte(`
queue: {cap: 5, debounce_ms: 100}
channels:
  telegram: {debounce_ms: 200, queue: {cap: 6, mode: collect}}
agents:
  main: {runner: echo, queue: {mode: interrupt}}
  other: {runner: echo}
`))
	if err != nil {
		t.Fatal(err)
	}
	if q := cfg.QueueFor("main", "telegram"); q.Mode != "interrupt" || q.Cap != 6 || q.DebounceMs != 200 || q.DebounceMaxMs != 600 {
		t.Errorf("main on telegram: %+v", q)
	}
	if q := cfg.QueueFor("other", "web"); q.Mode != "queue" || q.Cap != 5 || q.DebounceMs != 0 || q.DebounceMaxMs != 0 {
		t.Errorf("other on web: %+v", q)
	}
	if q := cfg.QueueFor("other", "hook"); q.DebounceMs != 100 || q.DebounceMaxMs != 300 {
		t.Errorf("other on a channel without settings: %+v", q)
	}
}

func TestEverySettingHasAPathAndAVariable(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, v := range loaded.Values() {
		name := Aliases(v.Path)[0]
		if strings.HasSuffix(v.Path, ".") || strings.Contains(v.Path, "..") || v.Path == "" {
			t.Errorf("a field has no yaml tag: %q", v.Path)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%s and %s share the variable %s", v.Path, other, name)
		}
		seen[name] = v.Path
	}
	if len(seen) < 80 {
		t.Errorf("got %d settings, want all of them", len(seen))
	}
}

// A package has a configuration for its service. Whoever starts a gateway as themselves beside it
// reads how to have one of their own.
func TestAUserBesideTheServiceLearnsHowToHaveAnOwnGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	system, data := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "config.yaml", "below-a-file")
	if err := os.WriteFile(system, []byte("data: "+data+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"run laneway config init for a gateway of your own, because " + system + " is for the service": {SystemFile: system},
		"name another with --data": {File: system},
	} {
		o.LookupEnv = environ()
		l, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Preflight(l)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Prepare(); err == nil || err.Error() != "data directory "+data+" cannot be made: not a directory; "+want {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// With /dev/null, the files in the usual places are not read.
func TestTheNullDeviceIsNoConfigurationFile(t *testing.T) {
	t.Parallel()
	system := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(system, []byte("drain_timeout: 7s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"variable": {LookupEnv: environ("LANEWAY_CONFIG", os.DevNull)}, "flag": {File: os.DevNull, LookupEnv: environ()}} {
		o.SystemFile = system
		if l, err := Load(o); err != nil || l.File != "" {
			t.Errorf("%s: read %+v, %v; want no file", name, l, err)
		}
	}
}

// Before, the start waited for a writer of the pipe and ignored SIGTERM.
func TestAConfigurationFileThatIsNoFileIsRefused(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "laneway.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe:        "configuration file " + pipe + " is a pipe; name a regular file",
		"/dev/full": "configuration file /dev/full is a device; name a regular file",
	} {
		for name, o := range map[string]Options{"variable": {LookupEnv: environ("LANEWAY_CONFIG", path)}, "flag": {File: path, LookupEnv: environ()}} {
			done := make(chan error, 1)
			go func() {
				_, err := Load(o)
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || err.Error() != want {
					t.Errorf("%s: got %v, want %s", name, err, want)
				}
			case <-time.After(5 * time.Second):
				t.Errorf("%s: the load of %s does not end", name, path)
			}
		}
	}
}

// FuzzParse searches for input that makes the parser panic, that is accepted although it is not
// valid, or that is refused without a reason.
func FuzzParse(f *testing.F) {
	for _, dir := range []string{"bad", "good"} {
		files, err := filepath.Glob("testdata/" + dir + "/*.yaml")
		if err != nil || len(files) == 0 {
			f.Fatal("no seeds", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("agents: &x {main: *x}"))
	f.Add([]byte("? [a, b]\n: c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := parse("fuzz.yaml", text)
		if err == nil {
			if again := cfg.check().err(); again != nil {
				t.Fatalf("accepted and not valid: %v", again)
			}
			return
		}
		var faults FaultsError
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("refused without faults: %v", err)
		}
		for _, fault := range faults {
			if fault.Message == "" {
				t.Fatalf("a fault without a sentence: %+v", fault)
			}
		}
	})
}

func FuzzShortAgent(f *testing.F) {
	f.Add("openai:m@http://127.0.0.1:1/v1")
	f.Add("command:a b c")
	f.Fuzz(func(t *testing.T, short string) {
		a, err := ParseShortAgent(short)
		if err == nil && a.Runner == "" {
			t.Fatalf("%q was taken without a runner", short)
		}
	})
}

func TestCommandLinesAreSplitLikeInAShellWithoutOne(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                                nil,
		"  ":                              nil,
		"cat":                             {"cat"},
		" my-agent  --session {session} ": {"my-agent", "--session", "{session}"},
		`python3 -c "print('a  b')" ''`:   {"python3", "-c", "print('a  b')", ""},
		`a\ b "c\"d" 'e\f' $(rm) "x"y`:    {"a b", `c"d`, `e\f`, "$(rm)", "xy"},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`"open`, "'open", `end\`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("%q was taken as %q", line, got)
		}
	}
}
