package acp

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

// Defaults of [Config].
const (
	DefaultIdle         = 10 * time.Minute
	DefaultMaxProcesses = 16
	DefaultQuestionTime = 5 * time.Minute
)

const (
	// startTime bounds the first exchange with a new process, installTime the same for an agent that its launcher installs first. Claude Code takes 4 s on an idle machine
	// and 25 s on a busy one.
	startTime   = 2 * time.Minute
	installTime = 5 * time.Minute
	// cancelTime is how long an agent may take to end its turn after session/cancel, killTime how long its process may take to end after SIGTERM. Together they are
	// the two seconds within which a runner must end.
	cancelTime = time.Second
	killTime   = time.Second
)

// Config of a [Runner]. Zero fields get the defaults.
type Config struct {
	// Argv is the program and its arguments. A program without a slash is looked up in PATH at each start.
	Argv []string
	// Dir is the absolute working directory of the program and its sessions; default the gateway's. With {session} in it, each session has its own.
	Dir string
	// Env is added to the clean environment and overrides it. Values are treated as secrets.
	Env map[string]string
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer] (1 MiB).
	MaxAnswer int
	// Idle is how long a process waits for the next turn of its session; default [DefaultIdle].
	Idle time.Duration
	// MaxProcesses at the same time; default [DefaultMaxProcesses].
	MaxProcesses int
	// Bridge is a program with arguments that serves the MCP server at LANEWAY_MCP_URL over standard input and output, for agents that cannot reach it over HTTP;
	// if empty, those have no tools.
	Bridge []string
	// QuestionTime is how long a person has to answer a permission request; default [DefaultQuestionTime]. The turn waits meanwhile.
	QuestionTime time.Duration
	// Installs is set for a launcher that installs the agent at its first start, which may take a minute.
	Installs bool
	// Auth is the method of `authenticate`, for an agent that requires it; if empty, authenticate is not called.
	Auth string
	// SignIn says what the operator must do when the agent requires a sign-in, as the end of a sentence; may be empty.
	SignIn string
	// UsageOfSession is set for an agent that reports the usage of its session since its process started, instead of the usage of the turn.
	UsageOfSession bool
	// NoServers is set for an agent that refuses MCP servers; it has no tools of the gateway.
	NoServers bool
	// Sessions stores the sessions of agents that can continue them in another process; if nil, a session ends with its process.
	Sessions agent.Sessions
	// Reaper ends processes that have left the process group of the agent; if nil, they outlive it.
	Reaper *process.Reaper
}

// Validate reports every fault with the name of its field. It does not check whether the program exists.
func (c Config) Validate() error {
	var faults []error
	if len(c.Argv) == 0 || strings.TrimSpace(c.Argv[0]) == "" {
		faults = append(faults, errors.New("command: must name a program"))
	}
	for i, arg := range c.Argv {
		if strings.Contains(arg, "\x00") {
			faults = append(faults, fmt.Errorf("command: argument %d contains a NUL", i))
		}
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		faults = append(faults, fmt.Errorf("dir: %q is not absolute", c.Dir))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(c.Env[name], "\x00") {
			faults = append(faults, fmt.Errorf("env: %q is no variable", name))
		}
	}
	if c.MaxAnswer < 0 || c.Idle < 0 || c.MaxProcesses < 0 || c.QuestionTime < 0 {
		faults = append(faults, errors.New("max_answer, idle, max_processes and question_time must not be negative"))
	}
	return errors.Join(faults...)
}

func (c Config) filled() Config {
	if c.MaxAnswer == 0 {
		c.MaxAnswer = agent.DefaultMaxAnswer
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.MaxProcesses == 0 {
		c.MaxProcesses = DefaultMaxProcesses
	}
	if c.QuestionTime == 0 {
		c.QuestionTime = DefaultQuestionTime
	}
	return c
}
