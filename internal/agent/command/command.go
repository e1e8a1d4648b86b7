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
	noise *rate.Limiter // lines of standard error, over all turns
	log   *slog.Logger
}

var _ agent.Runner = (*Runner)(nil)

// New checks cfg. Lookup gives the gateway's own PATH, HOME, LANG and TZ (os.LookupEnv); nil = only a standard PATH. A nil log discards.
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
	}, nil
}

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if err := agent.Ended(ctx); err != nil {
		return agent.Result{}, err // the cause of the context
	}
	input, err := r.input(req)
	if err != nil {
		return agent.Result{}, err
	}
	log := r.log.With(keySession, req.Session.String(), keyRunID, req.RunID)
	dir := outputDir(req, log)
	access, endTools := req.ProgramTools(ctx)
	defer endTools()
	at, err := program.Dir(cmp.Or(req.Dir, r.cfg.Dir), req.Session)
	if err != nil {
		return agent.Result{}, err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p, err := process.Start(work, process.Spec{
		Argv: append([]string{r.cfg.Argv[0]}, r.cfg.arguments(req)...), Env: r.environment(req, dir, access), Dir: at, Input: input,
		Grace: r.cfg.Grace, Reaper: r.cfg.Reaper, Hide: r.hide, Noise: r.noise, Log: log,
	})
	if err != nil {
		return agent.Result{}, program.NotStarted(err)
	}
	out := &output{mode: r.cfg.Output, answer: jsonline.NewAnswer(r.cfg.MaxAnswer, emit, log)}
	if r.cfg.Output == OutputClaude || r.cfg.Output == OutputCodex {
		out.known = &stream{out: out, emit: emit, calls: map[string]string{}}
		defer out.known.endCalls()
	}
	failed := p.Read(work, out.write)
	if failed == nil && work.Err() == nil {
		failed = out.close()
	}
	if failed != nil {
		stop(failed)
	}
	exit := p.Wait()
	if failed == nil {
		failed = agent.Ended(ctx) // whatever came after that was not listened to
	}
	result := agent.Result{Text: out.answer.Text.Text(), Usage: out.answer.Usage, StopReason: agent.StopNormal}
	if err := outcome(failed, out, exit); err != nil {
		return result, err
	}
	result.Attachments, err = out.files(dir)
	return result, err
}

// outputDir is the directory for files of a turn, "" = none. A turn that cannot have one goes on without.
func outputDir(req agent.Request, log *slog.Logger) string {
	if req.OutputDir == nil {
		return ""
	}
	dir, err := req.OutputDir()
	if err != nil {
		log.Warn("a program gets no directory for files", "err", err)
		return ""
	}
	return dir
}

// outcome is the first of the reasons why a turn failed: stopped or over the limit, reported by the program, exit code.
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

// input is what goes to standard input; nil = nothing.
func (r *Runner) input(req agent.Request) ([]byte, error) {
	switch {
	case r.cfg.Input == InputJSON:
		req.Messages = withPaths(req)
		raw, err := jsonline.Request(req)
		return append(raw, '\n'), err
	case r.cfg.messageInArgs():
		return nil, nil
	default:
		return []byte(r.prompt(req)), nil
	}
}

// prompt is the text for the program. One that acts by itself has to know that a turn runs again; others read LANEWAY_ATTEMPT.
func (r *Runner) prompt(req agent.Request) string {
	if again := agent.Repeated(req); again != "" && (r.cfg.Output == OutputClaude || r.cfg.Output == OutputCodex) {
		return again + "\n\n" + agent.Prompt(req)
	}
	return agent.Prompt(req)
}

// withPaths are the messages with files by paths that the program can open.
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
