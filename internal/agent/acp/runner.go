// Package acp is the runner for agents that speak the Agent Client Protocol over standard input and
// output, such as Claude Code, Gemini CLI or goose. The protocol's messages are those of
// github.com/coder/acp-go-sdk.
//
// # Processes
//
// Each session of the gateway has its own process. The first turn of the session starts it, and
// later turns reuse it ([pool]). A process runs one turn at a time; a second turn of the session
// waits for the first. A process that has been idle for the idle time is ended: its standard input
// is closed, and what remains after a second is killed. At most MaxProcesses live at the same time:
// a new one replaces the process that has been idle the longest. While all of them are busy, turns
// wait in order of arrival. A turn that another turn waits for fails as overloaded instead, because
// the two could wait for each other. [Runner.Close] ends all processes.
//
// The environment is clean, as for the command runner: PATH, HOME, LANG, TZ, the configured
// variables, LANEWAY_SESSION, LANEWAY_AGENT, and the variables of the tools (see below).
//
// # Turns
//
// A turn is one prompt ([turn]). The agent's text is streamed, its thoughts and plans are not
// shown, and its tool calls are events. The agent remembers the conversation itself, so a prompt
// has only the new messages and the transcript entries that the agent has not seen. An agent
// without that memory (first turn, /new, a session that it cannot continue) receives the history as
// JSON before the message, within the budget of the context window.
//
// # Sessions of the agent
//
// A new process continues the agent session of the previous process, if the agent supports this
// (see [agent.Sessions]): by session/resume, otherwise by session/load. The previous process ends
// first. Replayed updates are dropped. The session is stored before its first prompt and after each
// turn.
//
// # Tools
//
// If a turn has tools of the gateway, the agent's session has an MCP server named laneway: over
// HTTP if the agent supports it, otherwise the program [Config.Bridge]. The process has the
// variables LANEWAY_MCP_URL and LANEWAY_MCP_TOKEN. A session outlives its turns, so all of them use
// the same token. It grants the tools and rights of the running turn, and nothing between turns.
//
// # Permissions
//
// A permission request becomes a question to the person of the turn ([agent.Asker]): a sentence
// with the command, the path or the tool, and the directory. It has the agent's options; each label
// begins with Allow or Deny, added by the gateway. Values from the agent are quoted, and invisible
// characters are escaped. The refusing option is chosen if no answer arrives in time, if the turn
// has no person to ask (jobs, hooks, the OpenAI interface), and above the limits. A stop answers
// open requests as cancelled. The gateway offers the agent no files and no terminals: the agent
// uses those of its own process.
//
// # Ending
//
// When the context of a turn ends, or its answer exceeds the limit, the gateway sends
// session/cancel and gives the agent one second to end the turn. Then its process group receives
// SIGTERM, and SIGKILL after one more second; the next turn starts a new process. A process that
// ends during a turn is a failure with the reason `program`; the message has its exit code and its
// last lines of standard error.
//
// # The SDK
//
// The SDK handles requests and responses. Notifications do not pass through it ([link]): its queue
// holds 1,024 of them and closes the connection when it is full. A fast agent fills it with one
// answer. This package reads them itself, in order with the responses, and a slow turn slows the
// agent down. Lines, open requests and questions are bounded.
//
// # Goroutines
//
// Each process has one that reads its output and reaps it ([peer.relay]), those of package process,
// those of the SDK, and one for each prompt or cancel in progress. The runner counts the first and
// the last, which end before Close returns. Those of the SDK end with the output of the process.
//
// # Crash
//
// When the gateway is killed, its agents read the end of their input and exit. The turn runs again
// in a new process, which continues the session or receives the history.
package acp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// Defaults of [Config].
const (
	DefaultIdle         = 10 * time.Minute
	DefaultMaxProcesses = 16
	DefaultQuestionTime = 5 * time.Minute
)

const (
	// startTime bounds the first exchange with a new process, installTime the same for an agent
	// that its launcher installs first. Claude Code takes 4 s on an idle machine and 25 s on a busy
	// one.
	startTime   = 2 * time.Minute
	installTime = 5 * time.Minute
	// cancelTime is how long an agent may take to end its turn after session/cancel, killTime how
	// long its process may take to end after SIGTERM. Together they are the two seconds within
	// which a runner must end.
	cancelTime = time.Second
	killTime   = time.Second
)

// Config of a [Runner]. Zero fields get the defaults.
type Config struct {
	// Argv is the program and its arguments. A program without a slash is looked up in PATH at each
	// start.
	Argv []string
	// Dir is the absolute working directory of the program and its sessions; default the gateway's.
	// With {session} in it, each session has its own.
	Dir string
	// Env is added to the clean environment and overrides it. Values are treated as secrets.
	Env map[string]string
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer] (1 MiB).
	MaxAnswer int
	// Idle is how long a process waits for the next turn of its session; default [DefaultIdle].
	Idle time.Duration
	// MaxProcesses at the same time; default [DefaultMaxProcesses].
	MaxProcesses int
	// Bridge is a program with arguments that serves the MCP server at LANEWAY_MCP_URL over
	// standard input and output, for agents that cannot reach it over HTTP; if empty, those have no
	// tools.
	Bridge []string
	// QuestionTime is how long a person has to answer a permission request; default
	// [DefaultQuestionTime]. The turn waits meanwhile.
	QuestionTime time.Duration
	// Installs is set for a launcher that installs the agent at its first start, which may take a
	// minute.
	Installs bool
	// Auth is the method of `authenticate`, for an agent that requires it; if empty, authenticate
	// is not called.
	Auth string
	// SignIn says what the operator must do when the agent requires a sign-in, as the end of a
	// sentence; may be empty.
	SignIn string
	// UsageOfSession is set for an agent that reports the usage of its session since its process
	// started, instead of the usage of the turn.
	UsageOfSession bool
	// NoServers is set for an agent that refuses MCP servers; it has no tools of the gateway.
	NoServers bool
	// Sessions stores the sessions of agents that can continue them in another process; if nil, a
	// session ends with its process.
	Sessions agent.Sessions
	// Reaper ends processes that have left the process group of the agent; if nil, they outlive it.
	Reaper *process.Reaper
}

// Validate reports every fault with the name of its field. It does not check whether the program
// exists.
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
	c.MaxAnswer = cmp.Or(c.MaxAnswer, agent.DefaultMaxAnswer)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.MaxProcesses = cmp.Or(c.MaxProcesses, DefaultMaxProcesses)
	c.QuestionTime = cmp.Or(c.QuestionTime, DefaultQuestionTime)
	return c
}

// Runner answers with agents that run as processes. It is safe for concurrent use. The caller of
// New calls Close.
type Runner struct {
	cfg   Config
	env   map[string]string
	noise *rate.Limiter // lines of standard error of all processes
	log   *slog.Logger
	pool  pool
	// installed is true once the launcher has started the agent.
	installed atomic.Bool
}

var _ agent.Runner = (*Runner)(nil)

// New checks cfg and starts nothing. lookup returns the gateway's own PATH, HOME, LANG and TZ
// (os.LookupEnv); if nil, only a standard PATH is set. A nil log discards.
func New(cfg Config, lookup func(string) (string, bool), log *slog.Logger) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the acp runner: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg = cfg.filled()
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("configuring the acp runner: %w", err)
	}
	cfg.Dir = dir
	if strings.ContainsRune(cfg.Argv[0], filepath.Separator) {
		path, err := filepath.Abs(cfg.Argv[0])
		if err != nil {
			return nil, fmt.Errorf("configuring the acp runner: %w", err)
		}
		cfg.Argv = append([]string{path}, cfg.Argv[1:]...)
	}
	r := &Runner{cfg: cfg, env: process.Environment(cfg.Env, lookup), noise: rate.NewLimiter(10, 50), log: log}
	r.pool = pool{idle: cfg.Idle, most: cfg.MaxProcesses, seats: map[string]*seat{}, leaving: map[*seat]bool{}, peers: map[*peer]bool{}, log: log}
	return r, nil
}

// Close ends all processes and waits for them, two seconds at most. Running turns fail. Run must
// not be called after Close.
func (r *Runner) Close() { r.pool.close() }

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if err := agent.Ended(ctx); err != nil {
		return agent.Result{}, err
	}
	s, err := r.takeShown(ctx, req, emit)
	if err != nil {
		return agent.Result{}, err
	}
	defer r.pool.giveBack(s)
	access, endTools := req.ProgramTools(ctx) // not earlier: only from here until giveBack does the process work for this turn alone
	defer endTools()
	dir, err := program.Dir(cmp.Or(req.Dir, r.cfg.Dir), req.Session)
	if err != nil {
		return agent.Result{}, err
	}
	if s.peer != nil && s.peer.dir != dir { // the session was moved to another directory
		s.peer.quit()
		<-s.peer.gone
		s.peer = nil
	}
	if s.peer != nil && s.peer.memory.Forgot(req) && !s.peer.closes() { // its sessions end only with its process
		s.peer.endSession()
		s.forget()
	}
	if s.peer == nil {
		if s.peer, err = r.startShown(ctx, req.Session, dir, access, emit); err != nil {
			return agent.Result{}, err
		}
	}
	return s.peer.run(ctx, req, access, r.newTurn(req, emit))
}

// startShown calls start. While a launcher may install the agent, the turn shows this as a step.
func (r *Runner) startShown(ctx context.Context, session chat.SessionKey, dir string, access agent.ToolAccess, emit func(agent.Event)) (*peer, error) {
	if !r.cfg.Installs || r.installed.Load() {
		return r.start(ctx, session, dir, access, r.cfg.Sessions)
	}
	end := showStep(emit, "install", "Starting the agent; the first start installs it and may take a minute")
	p, err := r.start(ctx, session, dir, access, r.cfg.Sessions)
	end(err)
	r.installed.Store(err == nil)
	return p, err
}

// takeShown takes the seat of the turn's session. While it waits for a place, the turn shows this
// as a step.
func (r *Runner) takeShown(ctx context.Context, req agent.Request, emit func(agent.Event)) (*seat, error) {
	end := func(error) {}
	s, err := r.pool.take(ctx, req.Session.String(), req.Awaited, func() {
		end = showStep(emit, "wait", fmt.Sprintf("Waiting: all %d processes of this agent are at work", r.cfg.MaxProcesses))
	})
	end(err)
	return s, err
}

// showStep shows a wait of the turn as a tool call, until end is called.
func showStep(emit func(agent.Event), id, name string) (end func(error)) {
	emit(agent.Event{Kind: agent.EventTool, Tool: &chat.ToolEvent{Phase: "start", CallID: id, Name: name}})
	return func(err error) {
		emit(agent.Event{Kind: agent.EventTool, Tool: &chat.ToolEvent{Phase: "result", CallID: id, Name: name, IsError: err != nil}})
	}
}

// EndSession implements [agent.Host].
func (r *Runner) EndSession(session chat.SessionKey) { r.pool.endSession(session.String()) }

// Processes implements [agent.Host].
func (r *Runner) Processes() agent.Processes {
	living, evicted := r.pool.processes()
	all := agent.Processes{Living: len(living), Most: r.cfg.MaxProcesses, Evicted: evicted}
	groups := make([]int, 0, len(living))
	for _, p := range living {
		groups = append(groups, p.proc.Group())
	}
	all.Memory = process.Memory(groups)
	return all
}

// spec returns the program of a session. All turns of a session have the same token, see
// [agent.ToolAccess].
func (r *Runner) spec(session chat.SessionKey, dir string, access agent.ToolAccess, log *slog.Logger) process.Spec {
	env := maps.Clone(r.env)
	env["LANEWAY_SESSION"] = session.String()
	env["LANEWAY_AGENT"] = session.Agent
	hide := maps.Clone(r.cfg.Env)
	if access.Token != "" {
		env[urlVariable], env[tokenVariable] = access.URL, access.Token
		if hide == nil {
			hide = map[string]string{}
		}
		hide[tokenVariable] = access.Token
	}
	return process.Spec{
		Argv: r.cfg.Argv, Env: env, Dir: dir, Talks: true, Grace: killTime, Reaper: r.cfg.Reaper, Hide: process.Hider(hide), Noise: r.noise, Log: log,
	}
}
