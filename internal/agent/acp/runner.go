package acp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// Runner answers with agents that run as processes. It is safe for concurrent use. The caller of New calls Close.
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

// New checks cfg and starts nothing. lookup returns the gateway's own PATH, HOME, LANG and TZ (os.LookupEnv); if nil, only a standard PATH is set. A nil log discards.
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

// Close ends all processes and waits for them, two seconds at most. Running turns fail. Run must not be called after Close.
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

// takeShown takes the seat of the turn's session. While it waits for a place, the turn shows this as a step.
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

// spec returns the program of a session. All turns of a session have the same token, see [agent.ToolAccess].
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
