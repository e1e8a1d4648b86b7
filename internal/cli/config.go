package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"laneway/internal/config"
)

type configCmd struct {
	Init configInit `cmd:"" help:"Write a configuration file with the most important keys, and the agent that was found."`
	Keys configKeys `cmd:"" help:"Print every key: meaning, default, variable."`
}

type configInit struct {
	Agent string `help:"The agent main, as for laneway serve --agent. Default: what the environment offers." placeholder:"AGENT"`
	File  string `arg:"" optional:"" help:"The file; - prints it. Default ~/.config/laneway/config.yaml, where laneway serve finds it." type:"path"`
}

// Help is the example of the command.
func (*configInit) Help() string {
	return `A file that exists is never changed.

Examples:

    laneway config init
    laneway config init --agent openai:llama3.2@http://127.0.0.1:11434/v1
    laneway config init - | less`
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
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
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
	if _, err := fmt.Fprintln(env.stdout, file); err != nil {
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

// text returns the text of a new file. Without --agent, its settings that are not commented out are the defaults of laneway serve.
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

// Help is the example of the command.
func (*configKeys) Help() string { return "Example:\n\n    laneway config keys queue" }

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
		if _, err := fmt.Fprintf(env.stdout, "%s, %s)\n    %s\n", line, k.Variable, k.Meaning); err != nil {
			return err
		}
	}
	return nil
}
