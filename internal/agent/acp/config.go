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
	// startTime bounds the first exchange with a new process. Some agents are downloaded by their launcher at the first start.
	startTime = time.Minute
	// cancelTime is how long an agent may take to end its turn after session/cancel, killTime its process after SIGTERM. Together they are the two seconds
	// in which runners promise to end.
	cancelTime = time.Second
	killTime   = time.Second
)

// Config of a [Runner]. Zero fields get the defaults.
type Config struct {
	// Argv is the program and its arguments. A program without a slash is looked for in PATH at each start.
	Argv []string
	// Dir is the working directory of the program and of its sessions, absolute; "" = that of the gateway.
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
