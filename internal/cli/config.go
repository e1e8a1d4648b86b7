package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"laneway/internal/config"
	"laneway/internal/cron/schedule"
	"laneway/internal/wire"
)

type configCmd struct {
	Init configInit `cmd:"" help:"Create a configuration file with the most important keys and the agent that was found."`
	Keys configKeys `cmd:"" help:"List every key: meaning, default, variable."`
}

type configInit struct {
	Agent string `help:"The agent, as for laneway serve --agent. Default: the one that was found." placeholder:"AGENT"`
	File  string `arg:"" optional:"" help:"The file; - prints it. Default ~/.config/laneway/config.yaml, where laneway serve finds it." type:"path"`
}

// Run writes the file.
func (c *configInit) Run(env *environment) error {
	text, err := c.text(env)
	if err != nil {
		return err
	}
	if filepath.Base(c.File) == "-" {
		_, err := fmt.Fprint(env.stdout, text)
		return err
	}
	file := c.File
	if file == "" {
		if file = config.UserFile(env.lookupEnv); file == "" {
			return usageError("there is no home directory; name a file: laneway config init FILE")
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("making the directory: %w", err)
		}
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // the operator names it
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and was not changed; name another file, or print a new one: laneway config init -", file)
	}
	if err != nil {
		return fmt.Errorf("making the file: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the file: %w", err)
	}
	if err := env.printLine(file); err != nil {
		return err
	}
	c.overrides(env, file)
	return nil
}

// overrides names the variables of this environment that override the new file.
func (c *configInit) overrides(env *environment, file string) {
	if other, set := env.lookupEnv("LANEWAY_CONFIG"); set && c.File == "" {
		env.note("LANEWAY_CONFIG is set: laneway serve reads " + other + ", not this file")
	}
	for _, name := range env.variableNames() {
		_, set := env.lookupEnv(name)
		if set && (name == agentVariable || name == "LANEWAY_DEFAULT_AGENT" || strings.HasPrefix(name, agentVariables)) {
			env.note(name + " is set and overrides the agent of " + file)
		}
	}
}

// Variables of the agent main: the short form, and the prefix of its settings.
const (
	agentVariable  = "LANEWAY_AGENT"
	agentVariables = "LANEWAY_AGENTS_MAIN_"
)

// text returns the text of a new file. Without --agent, its settings that are not commented out are
// the defaults of laneway serve.
func (c *configInit) text(env *environment) (string, error) {
	agent, notes, err := c.first(env)
	if err != nil {
		return "", err
	}
	main, err := yaml.Marshal(map[string]any{"agents": map[string]any{config.MainAgent: agent.Members(config.MainAgent)}})
	if err != nil {
		return "", fmt.Errorf("writing the agent: %w", err)
	}
	notes = append(notes, "the flag --agent of laneway serve and the variables "+agentVariable+" and "+agentVariables+"… override it")
	return fmt.Sprintf(firstConfigText, "# "+strings.Join(notes, "\n# ")+"\n"+string(main)), nil
}

// first returns the agent main of a new file, with notes about it.
func (c *configInit) first(env *environment) (agent config.Agent, notes []string, err error) {
	if c.Agent != "" {
		if agent, err = config.ParseShortAgent(c.Agent); err != nil {
			return config.Agent{}, nil, usageError("--agent " + err.Error())
		}
		return agent, nil, nil
	}
	loaded, err := config.Load(config.Options{File: os.DevNull, LookupEnv: env.lookupEnv})
	if err != nil {
		return config.Agent{}, nil, err
	}
	return loaded.Config.Agents[config.MainAgent], loaded.Notes, nil
}

const firstConfigText = `# The configuration of laneway. Every key: laneway config keys. Check it: laneway doctor

# The agents. runner: echo, command, acp, http, openai (any compatible endpoint) or anthropic;
# or preset: claude, codex, gemini, opencode, qwen, copilot, openclaw.
%s#   system: "You are a helpful assistant."        # the prompt
#   api_key_env: OPENAI_API_KEY                   # the variable with the key of the endpoint
#   coder: {runner: command, command: ["my-agent", "--session", "{session}"], timeout: 10m}

# A Telegram bot: make one at @BotFather and put its token into the variable.
# channels:
#   telegram: {token_env: TELEGRAM_TOKEN}

# Where it keeps everything; default SQLite in the data directory.
# database: "postgres://laneway@localhost/laneway"
# data: /var/lib/laneway

# Jobs whose schedule names no zone.
# cron: {timezone: "Europe/Berlin"}

# Quiet time before the messages of a person become a turn, and what happens to messages while the agent answers:
# queue, followup, interrupt, collect or steer.
# queue: {debounce_ms: 800, mode: queue}
`

type configKeys struct {
	Prefix string `arg:"" optional:"" help:"Only keys that begin with this."`
	JSON   bool   `help:"Print JSON."`
}

// Run prints the keys.
func (c *configKeys) Run(env *environment) error {
	all, err := config.Keys()
	if err != nil {
		return err
	}
	keys := []config.Key{}
	for _, k := range all {
		if strings.HasPrefix(k.Path, c.Prefix) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return fmt.Errorf("no key begins with %s; see laneway config keys", oneLine(c.Prefix))
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"keys": keys})
	}
	for _, k := range keys {
		line := k.Path + " (" + k.Type
		if k.Default != "" {
			line += ", default " + k.Default
		}
		if err := env.print("%s, %s)\n    %s\n", line, k.Variable, k.Meaning); err != nil {
			return err
		}
	}
	return nil
}

type agentsCmd struct {
	List   agentsListCmd   `cmd:"" default:"withargs" help:"List the gateway's agents and their MCP servers."`
	Detect agentsDetectCmd `cmd:"" help:"Detect installed coding agents, and what the others need."`
}

type agentsDetectCmd struct {
	JSON bool `help:"Print JSON."`
}

// detected is one known agent on this host.
type detected struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// State is installed, npx or missing.
	State   string   `json:"state"`
	Command []string `json:"command,omitempty"`
	// Key is the variable that authenticates it; "" when it needs its own login.
	Key  string `json:"key,omitempty"`
	Next string `json:"next"`
}

// Run searches for the programs. It starts none.
func (c *agentsDetectCmd) Run(env *environment) error {
	var all []detected
	for _, p := range config.Presets() {
		all = append(all, env.detect(p))
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"agents": all})
	}
	rows, npx := [][]string{{"AGENT", "PROGRAM", "STATE", "NEXT"}}, false
	for _, d := range all {
		rows, npx = append(rows, []string{d.Name, d.Title, d.State, d.Next}), npx || d.State == "npx"
	}
	if npx {
		env.note("npx: not installed; laneway downloads it from npm when the agent starts")
	}
	return env.table(rows)
}

func (env *environment) detect(p config.Preset) detected {
	command, installs, err := p.Find(env.lookupEnv)
	d := detected{Name: p.Name, Title: p.Title, State: "installed", Command: command, Key: p.Key(env.lookupEnv), Next: "laneway serve --agent " + p.Name}
	switch {
	case err != nil:
		d.State, d.Next = "missing", "npm install --global "+p.Package
	case installs:
		d.State = "npx"
	}
	if err == nil && d.Key == "" {
		d.Next = "sign in (" + p.Login + ")"
		if len(p.Keys) > 0 {
			d.Next += " or set " + p.Keys[0]
		}
		d.Next += ", then laneway serve --agent " + p.Name
	}
	return d
}

type agentsListCmd struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

// Run lists the agents and the servers of tools.
func (c *agentsListCmd) Run(ctx context.Context, env *environment) error {
	var raw json.RawMessage
	if err := c.call(ctx, env, "agents.list", map[string]any{}, &raw); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var list wire.AgentsListResult
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("the list of agents cannot be read; are the gateway and this program of the same version? %w", err)
	}
	if err := env.table(env.agentRows(list)); err != nil {
		return err
	}
	for _, a := range list.Agents {
		for _, lack := range a.Lacks {
			if err := env.printLine("\n" + oneLine(lackOf(a.ID, lack))); err != nil {
				return err
			}
		}
	}
	if len(list.Servers) == 0 {
		return nil
	}
	if err := env.printLine(); err != nil {
		return err
	}
	if err := env.table(env.serverRows(list.Servers)); err != nil {
		return err
	}
	for _, s := range list.Servers {
		for _, t := range s.LeftOut {
			if err := env.print("\n%s: the tool %s is not offered: %s\n", oneLine(s.Name), oneLine(t.Name), oneLine(t.Reason)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lackOf returns a sentence about a part of requests that the model of an agent has refused.
func lackOf(id string, lack wire.AgentLack) string {
	text := fmt.Sprintf("%s: the model %s refuses %s; its requests go without until %s", id, lack.Model, lack.Part, time.UnixMilli(lack.UntilMs).Format("15:04:05"))
	if lack.Said != "" {
		text += ": " + lack.Said
	}
	return text
}

func (env *environment) agentRows(list wire.AgentsListResult) [][]string {
	rows := [][]string{{"AGENT", "NAME", "RUNNER", "MODEL", "SERVERS"}}
	for _, a := range list.Agents {
		id, model := a.ID, ""
		if id == list.DefaultID {
			id += " (default)"
		}
		if a.Model != nil {
			model = a.Model.Primary
		}
		rows = append(rows, []string{env.cell(id, 40), env.cell(a.Name, 40), cell(a.Runner, 20), env.cell(model, 40), env.cell(strings.Join(a.Servers, " "), 60)})
	}
	return rows
}

// toolCells returns the names of the tools of a server, with its own name for a tool that models
// know by another.
func toolCells(s wire.ToolServer) []string {
	names := slices.Clone(s.Tools)
	for i, name := range names {
		if at := slices.IndexFunc(s.Renamed, func(t wire.RenamedTool) bool { return t.Name == name }); at >= 0 {
			names[i] += "=" + s.Renamed[at].Own
		}
	}
	return names
}

func (env *environment) serverRows(servers []wire.ToolServer) [][]string {
	rows := [][]string{{"SERVER", "STATE", "TOOLS", "LAST ERROR"}}
	for _, s := range servers {
		last := ""
		if s.LastError != nil {
			last = *s.LastError
		}
		rows = append(rows, []string{env.cell(s.Name, 20), cell(s.State, 20), env.cell(strings.Join(toolCells(s), " "), 60), env.cell(last, 80)})
	}
	return rows
}

// versionReport is what `laneway version --json` prints.
type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Zones   string `json:"zones"` // the release of the time zone rules
}

// versionOf returns the version of this program for people and clients; an empty part is taken from
// the build info.
func versionOf(version, commit string) versionReport {
	r := versionReport{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Zones: schedule.ZoneRelease()}
	build, ok := debug.ReadBuildInfo()
	if ok && r.Commit == "" {
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				r.Commit = s.Value
			}
		}
	}
	r.Version = cmp.Or(r.Version, "0.0.0-dev")
	return r
}

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run prints the version.
func (c *versionCmd) Run(env *environment) error {
	r := env.version
	if c.JSON {
		return printJSON(env.stdout, r)
	}
	line := "laneway " + r.Version
	if r.Commit != "" {
		line += " (" + r.Commit[:min(12, len(r.Commit))] + ")"
	}
	return env.print("%s %s %s/%s zones %s\n", line, r.Go, r.OS, r.Arch, r.Zones)
}
