package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/time/rate"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// exitTemporary is EX_TEMPFAIL of sysexits.h: the program asks to be tried again later.
const exitTemporary = 75

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
		program, err := filepath.Abs(cfg.Argv[0])
		if err != nil {
			return nil, fmt.Errorf("configuring the command runner: %w", err)
		}
		cfg.Argv = append([]string{program}, cfg.Argv[1:]...)
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
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p, err := process.Start(work, process.Spec{
		Argv: append([]string{r.cfg.Argv[0]}, r.cfg.arguments(req)...), Env: r.environment(req, dir), Dir: r.cfg.Dir, Input: input,
		Grace: r.cfg.Grace, Hide: r.hide, Noise: r.noise, Log: log,
	})
	if err != nil {
		return agent.Result{}, notStarted(err)
	}
	out := &output{mode: r.cfg.Output, answer: agent.NewAnswer(r.cfg.MaxAnswer, emit), emit: emit, log: log}
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
	result := agent.Result{Text: out.answer.Text(), Usage: out.usage, StopReason: agent.StopNormal}
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
	case out.failed != nil:
		return out.failed
	case exit.Code != 0:
		return exitFailure(exit)
	default:
		return nil
	}
}

// input is what goes to standard input; nil = nothing.
func (r *Runner) input(req agent.Request) ([]byte, error) {
	switch {
	case r.cfg.Input == InputJSON:
		raw, err := json.Marshal(documentOf(req))
		if err != nil {
			return nil, agent.NewError(chat.FailBadRequest, "The request cannot be passed to the program of this agent.", err)
		}
		return append(raw, '\n'), nil
	case r.cfg.messageInArgs():
		return nil, nil
	default:
		return []byte(agent.Prompt(req)), nil
	}
}

// document is standard input with [InputJSON].
type document struct {
	Session        string                 `json:"session"`
	Agent          string                 `json:"agent"`
	RunID          string                 `json:"runId"`
	Attempt        int                    `json:"attempt"`
	IdempotencyKey string                 `json:"idempotencyKey"`
	DeadlineMs     int64                  `json:"deadlineMs,omitempty"`
	SystemPrompt   string                 `json:"systemPrompt,omitempty"`
	Model          string                 `json:"model,omitempty"`
	Thinking       string                 `json:"thinking,omitempty"`
	Params         map[string]any         `json:"params,omitempty"`
	History        []chat.TranscriptEntry `json:"history"`
	Messages       []chat.Content         `json:"messages"`
}

func documentOf(req agent.Request) document {
	doc := document{
		Session: req.Session.String(), Agent: req.Session.Agent, RunID: req.RunID, Attempt: req.Attempt,
		IdempotencyKey: req.IdempotencyKey, SystemPrompt: req.SystemPrompt, Model: req.Model, Thinking: req.Thinking,
		Params: req.Params, History: req.History, Messages: req.Messages,
	}
	if !req.Deadline.IsZero() {
		doc.DeadlineMs = req.Deadline.UnixMilli()
	}
	if doc.History == nil {
		doc.History = []chat.TranscriptEntry{}
	}
	return doc
}

// notStarted sorts the ways in which a program does not even begin.
func notStarted(err error) error {
	if errors.Is(err, syscall.E2BIG) {
		return agent.NewError(chat.FailBadRequest,
			"The message is too long to be an argument of this agent's program; send less, or let the program read standard input.", err)
	}
	failed := agent.NewError(chat.FailProgram,
		"The program behind this agent was not found or cannot be started; the operator has to check the agent's command.", err)
	failed.Retryable = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE)
	return failed
}

// maxSentence bounds what a program contributes to a sentence, in bytes.
const maxSentence = 500

func exitFailure(exit process.Exit) error {
	how := fmt.Sprintf("ended with exit code %d", exit.Code)
	if exit.Signal != "" {
		how = "was ended by the signal " + exit.Signal
	}
	sentence := "The program behind this agent " + how + "."
	if exit.Stderr != "" {
		sentence = "The program behind this agent " + how + ": " + exit.Stderr
	}
	failed := agent.NewError(chat.FailProgram, sentence, nil)
	failed.Retryable = exit.Code == exitTemporary
	return failed
}
