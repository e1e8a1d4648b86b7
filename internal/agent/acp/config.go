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
	// startTime bounds the first exchange with a new process, installTime that with one whose launcher installs it first. Claude Code takes 4 s on an idle machine and 25 s
	// on a busy one.
	startTime   = 2 * time.Minute
	installTime = 5 * time.Minute
	// cancelTime is how long an agent may take to end its turn after session/cancel, killTime its process after SIGTERM. Together they are the two seconds
	// in which runners promise to end.
	cancelTime = time.Second
	killTime   = time.Second
)

// Config of a [Runner]. Zero fields get the defaults.
type Config struct {
	// Argv is the program and its arguments. A program without a slash is looked for in PATH at each start.
	Argv []string
	// Dir is the working directory of the program and of its sessions, absolute; "" = that of the gateway. {session} in it makes one for each session.
	Dir string
	// Env is added to the clean environment and wins over it. Values are treated as secrets.
	Env map[string]string
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer] (1 MiB).
	MaxAnswer int
	// Idle is how long a process waits for the next turn of its session; default [DefaultIdle].
	Idle time.Duration
	// MaxProcesses at the same time; default [DefaultMaxProcesses].
	MaxProcesses int
	// Bridge is a program with arguments that serves the MCP server at LANEWAY_MCP_URL over standard input and output, for agents that cannot reach it over HTTP;
	// empty = those get no tools.
	Bridge []string
	// QuestionTime is how long a person has to answer a permission request; default [DefaultQuestionTime]. The turn waits with it.
	QuestionTime time.Duration
	// Installs: the program is a launcher that installs the agent at its first start, which may take a minute.
	Installs bool
	// Auth is the method of `authenticate` for an agent that demands it; "" = it is not called.
	Auth string
	// SignIn is what the operator does when the agent wants to be signed in, as the end of a sentence; "" = nothing is known about this.
	SignIn string
	// UsageOfSession: the agent reports what its session has used since its process started; otherwise what the turn has.
	UsageOfSession bool
	// NoServers: the agent refuses MCP servers, so it gets no tools of the gateway.
	NoServers bool
	// Sessions keeps the sessions of agents that can take them up in another process; nil = they end with their process.
	Sessions agent.Sessions
	// Reaper ends what leaves the group of a process; nil = that outlives the process.
	Reaper *process.Reaper
}

// Validate reports every fault with the name of its field. It does not look for the program.
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
