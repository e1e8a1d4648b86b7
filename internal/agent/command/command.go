package command

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// Keys of log lines.
const (
	keySession = "session"
	keyRunID   = "run_id"
)

// Runner starts a program for each turn. It is safe for concurrent use.
type Runner struct {
	cfg   Config
	env   map[string]string
	hide  *strings.Replacer
	noise *rate.Limiter // limits logged lines of standard error over all turns
	log   *slog.Logger
	gates gates // used where turns resume
	// resumes is true when a turn continues the conversation of the turn before.
	resumes bool
}

var _ agent.Runner = (*Runner)(nil)

// New checks cfg. Lookup returns the gateway's own PATH, HOME, LANG and TZ (os.LookupEnv); nil means only a standard PATH. A nil log discards.
func New(cfg Config, lookup func(string) (string, bool), log *slog.Logger) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the command runner: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg = cfg.filled()
	if strings.ContainsRune(cfg.Argv[0], filepath.Separator) {
		path, err := filepath.Abs(cfg.Argv[0])
		if err != nil {
			return nil, fmt.Errorf("configuring the command runner: %w", err)
		}
		cfg.Argv = append([]string{path}, cfg.Argv[1:]...)
	}
	if cfg.dashIsOption() {
		log.Warn("a message that begins with a dash is an option to this program; put -- before {message} or leave it out", "program", cfg.Argv[0])
	}
	return &Runner{
		cfg: cfg, env: process.Environment(cfg.Env, lookup), hide: process.Hider(cfg.Env), noise: rate.NewLimiter(10, 50), log: log,
		gates: gates{all: map[string]*gate{}}, resumes: cfg.resumes(),
	}, nil
}

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if err := agent.Ended(ctx); err != nil {
		return agent.Result{}, err // the cause of the context
	}
	dir, err := program.Dir(cmp.Or(req.Dir, r.cfg.Dir), req.Session)
	if err != nil {
		return agent.Result{}, err
	}
	t := &turn{req: req, emit: emit, log: r.log.With(keySession, req.Session.String(), keyRunID, req.RunID), dir: dir}
	if r.resumes {
		leave, err := r.gates.enter(ctx, req.Session.String())
		if err != nil {
			return agent.Result{}, err
		}
		defer leave()
		t.talk = r.talkOf(ctx, req, program.Kept{Sessions: r.cfg.Sessions, Key: req.Session, Dir: dir, Log: t.log})
	}
	if err := program.EndLeft(ctx, req.Left); err != nil {
		return agent.Result{}, err
	}
	t.files = outputDir(req, t.log)
	access, endTools := req.ProgramTools(ctx)
	defer endTools()
	t.env = r.environment(req, t.files, access)
	result, err := r.attempt(ctx, t)
	if t.refused {
		t.talk.kept.Lost(ctx, r.hide.Replace(err.Error()))
		t.talk = &talk{kept: t.talk.kept}
		result, err = r.attempt(ctx, t)
	}
	return result, err
}

// turn is what the attempts of one Run share: the program may refuse to continue its conversation, and is then started once more without it.
type turn struct {
	req  agent.Request
	emit func(agent.Event)
	log  *slog.Logger
	// dir is the working directory; files is the directory for files, "" if there is no such directory.
	dir, files string
	env        map[string]string
	talk       *talk // nil means the turn is a separate conversation
	// refused is true when the program has ended before it resumed the session.
	refused bool
}

// attempt starts the program and follows it to its end.
func (r *Runner) attempt(ctx context.Context, t *turn) (agent.Result, error) {
	input, args, err := r.input(t)
	if err != nil {
		return agent.Result{}, err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p, err := process.Start(work, process.Spec{
		Argv: append([]string{r.cfg.Argv[0]}, args...), Env: t.env, Dir: t.dir, Input: input,
		Grace: r.cfg.Grace, Reaper: r.cfg.Reaper, Hide: r.hide, Noise: r.noise, Log: t.log,
	})
	if err != nil {
		return agent.Result{}, program.NotStarted(err)
	}
	out := &output{mode: r.cfg.Output, answer: jsonline.NewAnswer(r.cfg.MaxAnswer, t.emit, t.log)}
	if r.cfg.known() {
		out.known = &stream{out: out, emit: t.emit, outside: t.req.ReadsOutside, calls: map[string]string{}}
		defer out.known.endCalls()
	}
	if t.talk != nil {
		t.talk.start(ctx, p)
		defer t.talk.end(ctx)
		out.known.session = func(id string) { t.talk.begin(ctx, id, t.req) }
		out.known.ofTurn = t.talk.memory.UsedBy
	}
	failed := t.keep(ctx, p)
	if failed != nil {
		stop(failed) // its output is read and discarded
	}
	if err := p.Read(work, out.write); failed == nil {
		failed = err
	}
	if failed == nil && work.Err() == nil {
		failed = out.close()
	}
	if failed != nil {
		stop(failed)
	}
	exit := p.Wait()
	if failed == nil {
		failed = agent.Ended(ctx) // what came after that was not read
	}
	result := agent.Result{Text: out.answer.Text.Text(), Usage: out.answer.Usage, StopReason: agent.StopNormal}
	if err := outcome(failed, out, exit); err != nil {
		t.refused = failed == nil && t.talk != nil && t.talk.id != "" && t.talk.begun == "" && !out.answer.Text.Begun()
		return result, err
	}
	result.Attachments, err = out.files(t.files)
	return result, err
}

// keep stores the process of a turn, so that a later attempt can end it. A conversation that continues has it in its session.
func (t *turn) keep(ctx context.Context, p *process.Process) error {
	if t.talk != nil || t.req.KeepProgram == nil {
		return nil
	}
	running, err := program.Running(p)
	if err != nil || running.Started == "" { // it has ended, or this system cannot identify it
		return nil //nolint:nilerr // a program that cannot be ended later must still run
	}
	return t.req.KeepProgram(ctx, running)
}

// outputDir returns the directory for files of a turn, or "". A turn whose directory cannot be made continues without one.
func outputDir(req agent.Request, log *slog.Logger) string {
	if req.OutputDir == nil {
		return ""
	}
	dir, err := req.OutputDir()
	if err != nil {
		log.Warn("a program has no directory for files", "err", err)
		return ""
	}
	return dir
}

// outcome returns the first of the reasons why a turn failed: stopped or over the limit, reported by the program, exit code.
func outcome(failed error, out *output, exit process.Exit) error {
	switch {
	case failed != nil:
		return failed
	case out.answer.Failed != nil:
		return out.answer.Failed
	case exit.Code != 0:
		return program.Ended(exit)
	default:
		return nil
	}
}

// input returns what is written to standard input, nil if nothing is, and the arguments.
func (r *Runner) input(t *turn) (input []byte, args []string, err error) {
	prompt, session := agent.Prompt(t.req), ""
	if r.cfg.known() {
		if prompt, err = r.prompt(t); err != nil {
			return nil, nil, err
		}
	}
	if t.talk != nil {
		session = t.talk.id
	}
	args = r.cfg.arguments(t.req, prompt, session)
	switch {
	case r.cfg.Input == InputJSON:
		req := t.req
		req.Messages = withPaths(req)
		raw, err := jsonline.Request(req)
		return append(raw, '\n'), args, err
	case r.cfg.messageInArgs():
		return nil, args, nil
	default:
		return []byte(prompt), args, nil
	}
}

// prompt returns the prompt for a known program. Such a program acts by itself, so the prompt states what it has not seen, that a turn runs again,
// and where files are. Other programs have variables for this.
func (r *Runner) prompt(t *turn) (string, error) {
	req, memory := t.req, program.Memory{}
	if t.talk != nil {
		memory = t.talk.memory
	} else {
		req.History = nil // the program keeps the conversation itself
	}
	parts, err := memory.Before(req, t.files)
	if err != nil {
		return "", err
	}
	if files := fileLines(req); files != "" {
		parts = append(parts, files)
	}
	return strings.Join(append(parts, agent.Prompt(req)), "\n\n"), nil
}

// withPaths returns the messages with the paths at which the program can open their files.
func withPaths(req agent.Request) []chat.Content {
	if req.Files == nil {
		return req.Messages
	}
	messages := slices.Clone(req.Messages)
	for i := range messages {
		messages[i].Attachments = slices.Clone(messages[i].Attachments)
		for j := range messages[i].Attachments {
			if file := &messages[i].Attachments[j]; file.Path != "" {
				file.Path = req.Files.Path(file.Path)
			}
		}
	}
	return messages
}
