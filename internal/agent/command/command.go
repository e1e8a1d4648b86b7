// Package command is the runner that starts a program for each turn, so that a script or a coding
// agent can answer a session.
//
// # Starting
//
// The program receives its arguments as they are configured, without a shell: `$()`, quotes and
// newlines in a message have no special meaning. The items {session}, {message}, {run} and {agent}
// are replaced within an argument; everything else stays as it is. Without {message} the text of
// the turn goes to standard input. A message can begin with a dash, and a program would take it for
// an option, so put `--` before {message} or use standard input; [New] warns where neither is the
// case. With [InputJSON] standard input is one JSON document with history, senders, parameters, and
// attachments by their absolute paths.
//
// The environment is clean: PATH, HOME, LANG, TZ, what is configured, and
//
//	LANEWAY_SESSION, LANEWAY_RUN_ID, LANEWAY_AGENT, LANEWAY_ATTEMPT, LANEWAY_IDEMPOTENCY_KEY, LANEWAY_OUTPUT_DIR
//	LANEWAY_MCP_URL, LANEWAY_MCP_TOKEN: the tools of the gateway for this turn, as an MCP server, where the turn has tools
//
// # Answering
//
// Standard output is the answer and is streamed as it comes. If its first line is a JSON object
// with a member delta, final, error, usage or attach, the output is read as JSON lines instead:
//
//	{"delta": "new text"}
//	{"usage": {"inputTokens": 12, "outputTokens": 34, "model": "m"}}
//	{"error": "One sentence for the person.", "reason": "rate_limit"}
//	{"final": "the whole text"}
//	{"attach": {"path": "chart.png", "name": "Sales.png", "mimeType": "image/png"}}
//
// final adds what the deltas do not contain yet. Other members are ignored, and a later line that
// is not JSON counts as text. [OutputText] and [OutputJSON] choose the format without looking at
// the first line.
//
// # Conversations
//
// Claude Code ([OutputClaude]) and Codex ([OutputCodex]) keep a conversation themselves. The
// session that they report is stored ([Config.Sessions]), and the next turn of the session
// continues it: --resume ID or resume ID is added before the prompt. A new conversation starts with
// the history as JSON before the message, a continued one with what others have added to the
// transcript. A program that ends with a failure before it reports a session has refused to
// continue, and is started once more without it. Such turns of a session run one at a time.
//
// # Files
//
// What the program leaves in the directory LANEWAY_OUTPUT_DIR is sent to the person after the text.
// The directory is new, for this turn alone, and removed when the turn has ended; a turn that fails
// sends no files. JSON lines name each file with attach: path is relative to that directory, name
// is what the person sees (default: the file's), mimeType is found by content if it is missing. For
// a program that answers in plain text, every regular file in the directory itself is sent, in the
// order of names.
//
// Standard error goes to the log, a few lines per second, and its last lines are part of the error
// message when the program fails. Values of configured variables are taken out of both, because
// they may be keys.
//
// # Ending
//
// The program runs in its own process group. When the context is done, or the answer is longer than
// it may be, the group receives SIGTERM and two seconds later SIGKILL. When the program ends by
// itself, the processes that it left in its group are killed, and the runner does not wait for
// output that they hold open. A process that has left the group is killed too where a
// [process.Reaper] is configured; stronger isolation (containers, users) is left to the operator.
// An exit code other than 0 is a failure, also when there was an answer.
//
// Package process starts and ends the program; its goroutines have ended when Run returns.
//
//	runner, err := command.New(command.Config{
//		Argv: []string{"my-agent", "--session", "{session}"},
//	}, os.LookupEnv, log)
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
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

// DefaultGrace is the time between SIGTERM and SIGKILL. By contract, a runner ends within two
// seconds after its context.
const DefaultGrace = process.DefaultGrace

const messageItem = "{message}"

// Config of a [Runner]. Zero fields take the defaults.
type Config struct {
	// Argv is the program and its arguments. A program without a slash is resolved in PATH at each
	// turn.
	Argv []string
	// Dir is the working directory, absolute; "" means that of the gateway. With {session} in it
	// each session has a directory.
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
	// Sessions keeps the conversations of claude and codex; nil means that each turn is a new
	// conversation that starts with the history.
	Sessions agent.Sessions
	// Reaper ends processes that leave the group of the program; nil means that they outlive the
	// turn.
	Reaper *process.Reaper
}

// Validate reports every fault with the name of its field. It does not check that the program
// exists.
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
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, agent.DefaultMaxAnswer)
	c.Input = cmp.Or(c.Input, InputText)
	c.Output = cmp.Or(c.Output, OutputAuto)
	return c
}

// messageInArgs reports whether an argument carries the message.
func (c Config) messageInArgs() bool {
	return slices.ContainsFunc(c.Argv[1:], func(arg string) bool { return strings.Contains(arg, messageItem) })
}

// dashIsOption reports whether a message that begins with a dash would look like an option to the
// program.
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

// arguments returns the configured arguments with their items replaced, and those that continue a
// session of the program ("" for a new one). The replacement is done once, so that an item in a
// message is not replaced.
func (c Config) arguments(req agent.Request, prompt, session string) []string {
	items := strings.NewReplacer(
		"{session}", req.Session.String(), messageItem, strings.ReplaceAll(prompt, "\x00", ""), "{run}", req.RunID, "{agent}", req.Session.Agent)
	args := make([]string, 0, len(c.Argv)+2)
	for _, arg := range c.Argv[1:] {
		args = append(args, items.Replace(arg))
	}
	return slices.Insert(args, c.beforePrompt()-1, c.resumption(session)...)
}

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

// New checks cfg. Lookup returns the gateway's own PATH, HOME, LANG and TZ (os.LookupEnv); nil
// means only a standard PATH. A nil log discards.
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

// turn is what the attempts of one Run share: the program may refuse to continue its conversation,
// and is then started once more without it.
type turn struct {
	req  agent.Request
	emit func(agent.Event)
	log  *slog.Logger
	// dir is the working directory; files is the directory for files, "" if there is no such
	// directory.
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

// keep stores the process of a turn, so that a later attempt can end it. A conversation that
// continues has it in its session.
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

// outputDir returns the directory for files of a turn, or "". A turn whose directory cannot be made
// continues without one.
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

// outcome returns the first of the reasons why a turn failed: stopped or over the limit, reported
// by the program, exit code.
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

// prompt returns the prompt for a known program. Such a program acts by itself, so the prompt
// states what it has not seen, that a turn runs again, and where files are. Other programs have
// variables for this.
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
	return strings.Join(append(parts, agent.PromptAfter(req, req.History)), "\n\n"), nil
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

// environment returns the variables of the program of one turn; dir is its directory for files, or
// "".
func (r *Runner) environment(req agent.Request, dir string, access agent.ToolAccess) map[string]string {
	env := maps.Clone(r.env)
	env["LANEWAY_SESSION"] = req.Session.String()
	env["LANEWAY_RUN_ID"] = req.RunID
	env["LANEWAY_AGENT"] = req.Session.Agent
	env["LANEWAY_ATTEMPT"] = strconv.Itoa(req.Attempt)
	env["LANEWAY_IDEMPOTENCY_KEY"] = req.IdempotencyKey
	if access.Token != "" {
		env["LANEWAY_MCP_URL"], env["LANEWAY_MCP_TOKEN"] = access.URL, access.Token
	}
	if dir != "" {
		env["LANEWAY_OUTPUT_DIR"] = dir
	}
	return env
}
