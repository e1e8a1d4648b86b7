package command

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/process"
)

// Input is what the program reads.
type Input string

// The inputs. "" is text.
const (
	InputText Input = "text" // the prompt of the turn
	InputJSON Input = "json" // one document with everything
)

// Output is how the program answers.
type Output string

// The outputs. "" is auto.
const (
	OutputAuto Output = "auto"  // the first line decides
	OutputText Output = "text"  // as it comes
	OutputJSON Output = "jsonl" // JSON lines; a line that is not JSON is text
	// The JSON lines of known programs, see [stream].
	OutputClaude Output = "claude"
	OutputCodex  Output = "codex"
)

// DefaultGrace is the time between SIGTERM and SIGKILL. By contract, a runner ends within two seconds after its context.
const DefaultGrace = process.DefaultGrace

const messageItem = "{message}"

// Config of a [Runner]. Zero fields take the defaults.
type Config struct {
	// Argv is the program and its arguments. A program without a slash is resolved in PATH at each turn.
	Argv []string
	// Dir is the working directory, absolute; "" means that of the gateway. With {session} in it each session has a directory.
	Dir string
	// Env is added to the clean environment and wins over it. Values are treated as secrets.
	Env map[string]string
	// Input is text or json.
	Input Input
	// Output is auto, text, jsonl, claude or codex.
	Output Output
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer] (1 MiB).
	MaxAnswer int
	// Grace between SIGTERM and SIGKILL; default [DefaultGrace], which is also the most.
	Grace time.Duration
	// Sessions keeps the conversations of claude and codex; nil means that each turn is a new conversation that starts with the history.
	Sessions agent.Sessions
	// Reaper ends processes that leave the group of the program; nil means that they outlive the turn.
	Reaper *process.Reaper
}

// Validate reports every fault with the name of its field. It does not check that the program exists.
func (c Config) Validate() error {
	faults := c.checkArgv()
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		faults = append(faults, fmt.Errorf("dir: %q is not absolute", c.Dir))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(c.Env[name], "\x00") {
			faults = append(faults, fmt.Errorf("env: %q is no variable", name))
		}
	}
	if !slices.Contains([]Input{"", InputText, InputJSON}, c.Input) {
		faults = append(faults, fmt.Errorf("input: %q is neither text nor json", c.Input))
	}
	if !slices.Contains([]Output{"", OutputAuto, OutputText, OutputJSON, OutputClaude, OutputCodex}, c.Output) {
		faults = append(faults, fmt.Errorf("output: %q is not one of auto, text, jsonl, claude, codex", c.Output))
	}
	if c.MaxAnswer < 0 {
		faults = append(faults, errors.New("max_answer must not be negative"))
	}
	if c.Grace < 0 || c.Grace > DefaultGrace {
		faults = append(faults, fmt.Errorf("grace: %s is not between 0 and %s", c.Grace, DefaultGrace))
	}
	return errors.Join(faults...)
}

func (c Config) checkArgv() []error {
	if len(c.Argv) == 0 || strings.TrimSpace(c.Argv[0]) == "" {
		return []error{errors.New("command: must name a program")}
	}
	var faults []error
	for _, item := range []string{"{session}", messageItem, "{run}", "{agent}"} {
		if strings.Contains(c.Argv[0], item) {
			faults = append(faults, fmt.Errorf("command: the program must not depend on %s", item))
		}
	}
	for i, arg := range c.Argv {
		if strings.Contains(arg, "\x00") {
			faults = append(faults, fmt.Errorf("command: argument %d contains a NUL", i))
		}
	}
	return faults
}

func (c Config) filled() Config {
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.MaxAnswer == 0 {
		c.MaxAnswer = agent.DefaultMaxAnswer
	}
	if c.Input == "" {
		c.Input = InputText
	}
	if c.Output == "" {
		c.Output = OutputAuto
	}
	return c
}

// messageInArgs reports whether an argument carries the message.
func (c Config) messageInArgs() bool {
	return slices.ContainsFunc(c.Argv[1:], func(arg string) bool { return strings.Contains(arg, messageItem) })
}

// dashIsOption reports whether a message that begins with a dash would look like an option to the program.
func (c Config) dashIsOption() bool {
	for _, arg := range c.Argv[1:] {
		if arg == "--" {
			return false
		}
		if strings.HasPrefix(arg, messageItem) {
			return true
		}
	}
	return false
}

// arguments returns the configured arguments with their items replaced, and those that continue a session of the program ("" for a new one). The
// replacement is done once, so that an item in a message is not replaced.
func (c Config) arguments(req agent.Request, prompt, session string) []string {
	items := strings.NewReplacer(
		"{session}", req.Session.String(), messageItem, withoutNUL(prompt), "{run}", req.RunID, "{agent}", req.Session.Agent)
	args := make([]string, 0, len(c.Argv)+2)
	for _, arg := range c.Argv[1:] {
		args = append(args, items.Replace(arg))
	}
	return slices.Insert(args, c.beforePrompt()-1, c.resumption(session)...)
}

// withoutNUL keeps the kernel from refusing the argument.
func withoutNUL(s string) string { return strings.ReplaceAll(s, "\x00", "") }
