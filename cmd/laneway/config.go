package main

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
	Init configInit `cmd:"" help:"Write a configuration file with the keys that matter first, and the agent that was found."`
	Keys configKeys `cmd:"" help:"Print every key: meaning, default, variable."`
}

type configInit struct {
	File string `arg:"" optional:"" help:"The file; - prints it. Default ~/.config/laneway/config.yaml, where laneway serve finds it." type:"path"`
}

// Help is the example of the command.
func (*configInit) Help() string {
	return `A file that exists is never changed.

Examples:

    laneway config init
    laneway config init - | less`
}

// Run writes the file.
func (c *configInit) Run(env *environment) error {
	text, err := firstConfig(env)
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
	_, err = fmt.Fprintln(env.stdout, file)
	return err
}

// firstConfig is the text of a new file. What stands in it uncommented is what laneway serve would do without it.
func firstConfig(env *environment) (string, error) {
	loaded, err := config.Load(config.Options{File: os.DevNull, LookupEnv: env.lookupEnv})
	if err != nil {
		return "", err
	}
	agent := loaded.Config.Agents[config.MainAgent]
	members := map[string]any{"runner": agent.Runner}
	for name, value := range map[string]string{"model": agent.Model, "base_url": agent.BaseURL} {
		if value != "" {
			members[name] = value
		}
	}
	main, err := yaml.Marshal(map[string]any{"agents": map[string]any{config.MainAgent: members}})
	if err != nil {
		return "", fmt.Errorf("writing the agent: %w", err)
	}
	var notes strings.Builder
	for _, note := range loaded.Notes {
		notes.WriteString("# " + note + "\n")
	}
	return fmt.Sprintf(firstConfigText, notes.String()+string(main)), nil
}

const firstConfigText = `# The configuration of laneway. Every key: laneway config keys. Check it: laneway doctor

# The agents. runner: echo, command, acp, http, openai (any compatible endpoint) or anthropic.
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
