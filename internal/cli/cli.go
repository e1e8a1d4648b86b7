// Package cli is the command line of laneway, including the gateway.
//
// # Ideas
//
// A command is a struct in the table of [commands]: its fields are flags and arguments, help.txt has
// its examples, Run executes it. Each group of commands has its own file. The package makes no decisions
// about sessions, lanes or jobs: `serve` checks the configuration and runs the process, the other
// commands are clients of the public protocol like any other client.
//
// All external dependencies of a command are in [Options] and [environment]: streams, variables,
// signals, and the dialer for a gateway. So a test can run a command as a shell does. The package
// itself does not end the process, listen for signals or read variables.
//
// # Guarantees
//
// Exit status 0 is success, 1 a failure, 2 wrong usage, 78 a configuration that must not start.
// Errors are one sentence on standard error with what to do. Data goes to standard output, as a
// table or, with --json, with the member names of the protocol. NO_COLOR is honoured. Secrets are
// never printed.
//
// # Shutdown
//
// The end of its context requests a command to end, as the first SIGINT or SIGTERM does: `serve`
// drains, `send` stops its turn, other commands stop waiting. Signals.Now, for the second signal,
// ends it at once.
package cli

import (
	"cmp"
	"context"
	_ "embed" // of helpText
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"laneway/internal/app"
	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/config"
	"laneway/internal/words"
)

// ErrInterrupted is the cause of a context that a signal has ended.
var ErrInterrupted = errors.New("interrupted")

// Options are the inputs of a command line from its process.
type Options struct {
	// Stdin and Stdout may be a terminal, on which commands ask questions and edit lines.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
	// Environ lists all variables as NAME=value.
	Environ func() []string
	// Version and Commit of the program; "" = from the build info.
	Version, Commit string
	Signals         Signals
	// SystemConfig is the configuration file of the host; "" = the default of package config.
	SystemConfig string
	// Program is the path of the program, which agents start to call their tools; "" = they have no
	// tools.
	Program string
	// Exec replaces the process by another program, as [syscall.Exec] does.
	Exec func(program string, args, environ []string) error
	// Adopt lets serve adopt processes that programs of agents leave. Set it only in a process that
	// runs nothing but this command line.
	Adopt bool
}

// Signals are requests to a running command in addition to the end of its context. A nil channel
// means no requests.
type Signals struct {
	// Now is closed when the command must end at once.
	Now <-chan struct{}
	// Reload requests that serve reads its configuration again, Restart that it restarts the
	// scheduler. Several requests in quick succession count as one.
	Reload, Restart <-chan struct{}
}

// Run executes one command line and returns its exit status. The end of ctx asks the command to
// end.
func Run(ctx context.Context, args []string, o Options) int {
	version := versionOf(o.Version, o.Commit)
	env := &environment{
		stdin: o.Stdin, stdout: o.Stdout, stderr: o.Stderr, lookupEnv: o.LookupEnv, environ: o.Environ,
		systemConfig: o.SystemConfig, now: time.Now, signals: o.Signals, version: version, exec: o.Exec,
		dial: dialAs(version.Version, 0), upload: uploadFile, service: ownGateway{o}, migrate: schema{},
	}
	in, fromFile := o.Stdin.(*os.File)
	env.fromTerminal = fromFile && term.IsTerminal(int(in.Fd()))
	if out, is := o.Stdout.(*os.File); is {
		env.toTerminal = term.IsTerminal(int(out.Fd()))
		if env.toTerminal {
			env.width, _, _ = term.GetSize(int(out.Fd())) // 0 if the terminal has no size
		}
		if fromFile {
			env.terminal = openConsole(in, out)
		}
	}
	return run(ctx, args, env)
}

// environment has the external dependencies of a command.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookupEnv      func(string) (string, bool)
	// environ lists all variables as NAME=value, to find misspelled ones.
	environ func() []string
	// terminal is the controlling terminal of stdin and stdout; nil when one of them is not a
	// terminal.
	terminal *console
	// fromTerminal: a person types stdin.
	fromTerminal bool
	// toTerminal: stdout is read by a person, in lines of limited width: width, 0 = not known.
	toTerminal bool
	width      int
	// systemConfig is the configuration file of the host; "" = the default of package config.
	systemConfig string
	now          func() time.Time
	signals      Signals
	version      versionReport
	exec         func(program string, args, environ []string) error
	// json: errors are printed as JSON. quiet: notes, progress and the banner are not printed.
	json, quiet bool
	// serving: the command is serve, which reports faults of the configuration as the reason why it
	// does not start.
	serving bool

	dial    dialer
	upload  uploader
	opened  []gatewayConn // connections of the command, which end with it
	service service
	migrate migrator
}

// Exit statuses of every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// helpText has the long help of each command, with an example: a heading with the path of the
// command, then the text.
//
//go:embed help.txt
var helpText string

// commands is the table of commands.
type commands struct {
	Quiet quietFlag `name:"no-notes" short:"q" help:"Print only results and errors: no notes, no progress, no banner."`

	Serve      serveCmd      `cmd:"" group:"run" help:"Run the gateway."`
	Config     configCmd     `cmd:"" group:"run" help:"Create a configuration file, or list every key."`
	Doctor     doctorCmd     `cmd:"" group:"run" help:"Find problems with the installation, and how to fix them."`
	Health     healthCmd     `cmd:"" group:"run" help:"Check gateway health, for example in a container."`
	Logs       logsCmd       `cmd:"" group:"run" help:"Show the log of the gateway on this host."`
	Chat       chatCmd       `cmd:"" group:"talk" help:"Chat with an agent in the terminal."`
	Send       sendCmd       `cmd:"" group:"talk" help:"Send one message and print the answer."`
	Dashboard  dashboardCmd  `cmd:"" group:"talk" help:"Open the dashboard in a browser, with a temporary token."`
	Questions  questionsCmd  `cmd:"" group:"talk" help:"List and answer the permission questions of agents."`
	Files      filesCmd      `cmd:"" group:"talk" help:"Download files that agents created."`
	Sessions   sessionsCmd   `cmd:"" group:"talk" help:"List, search, reset, stop and delete sessions."`
	Toc        tocCmd        `cmd:"" group:"talk" help:"Show summaries of conversations, by day, week or month."`
	Tasks      tasksCmd      `cmd:"" group:"talk" help:"List, show and stop tasks that agents delegated."`
	Cron       cronCmd       `cmd:"" group:"jobs" help:"Schedule jobs, and see their runs."`
	Scheduler  schedulerCmd  `cmd:"" group:"jobs" help:"Show, pause and run jobs and built-in maintenance."`
	Status     statusCmd     `cmd:"" group:"watch" help:"Show what needs attention, and the state of everything."`
	Runs       runsCmd       `cmd:"" group:"watch" help:"Show what runs, what waits and why, and what has ended."`
	Why        whyCmd        `cmd:"" group:"watch" help:"Explain where the answer to a message is."`
	Usage      usageCmd      `cmd:"" group:"watch" help:"Show tokens, costs and budgets."`
	Agents     agentsCmd     `cmd:"" group:"access" help:"List agents and their MCP servers, or detect coding agents."`
	Pair       pairCmd       `cmd:"" group:"access" help:"Approve or revoke chat users."`
	Token      tokenCmd      `cmd:"" group:"access" help:"Create, list and revoke tokens."`
	MCP        mcpCmd        `cmd:"" group:"access" name:"mcp" help:"Serve the tools of the gateway as an MCP server over stdio."`
	Hold       holdCmd       `cmd:"" group:"maintain" help:"Pause all automatic activity: sending, receiving, jobs."`
	Release    releaseCmd    `cmd:"" group:"maintain" help:"End a hold, after showing what will start."`
	Migrate    migrateCmd    `cmd:"" group:"maintain" help:"Upgrade or roll back the database schema."`
	Store      storeCmd      `cmd:"" group:"maintain" help:"Copy everything between SQLite and PostgreSQL."`
	Backup     backupCmd     `cmd:"" group:"maintain" help:"Back up a running gateway into a new directory."`
	Completion completionCmd `cmd:"" group:"shell" help:"Print a completion script for a shell."`
	Version    versionCmd    `cmd:"" group:"shell" help:"Print the version."`
	Man        manCmd        `cmd:"" name:"__man" hidden:"" group:"shell" help:"Write the manual pages."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" group:"shell" help:"Candidates for the next word; for completion scripts."`
}

// exitNow passes the status of a parser that has already answered (--help) to run.
type exitNow int

// usageError is wrong usage that the parser cannot see.
type usageError string

func (e usageError) Error() string { return string(e) }

// quietFlag is a flag of every command.
type quietFlag bool

// BeforeApply is called before the command runs.
func (quietFlag) BeforeApply(env *environment) error {
	env.quiet = true
	return nil
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, env *environment) (code int) {
	env.json = wantsJSON(args)
	env.lookupEnv = config.Present(env.lookupEnv)
	defer func() {
		if stop, ok := recover().(exitNow); ok {
			code = int(stop)
		}
	}()
	args = spelled(args)
	parser, err := newParser(env, tableFor(args))
	if err != nil {
		return env.fail(fmt.Errorf("building the table of commands: %w", err))
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return env.fail(explainUsage(err, args))
	}
	if err := emptyArgument(parsed); err != nil {
		return env.fail(err)
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	if parsed.Command() == "serve" { // it drains as long as its settings allow
		return env.fail(parsed.Run(env))
	}
	return env.fail(env.untilSignal(ctx, func() error {
		defer func() {
			for _, conn := range env.opened {
				closeQuietly(conn)
			}
		}()
		return parsed.Run(env)
	}))
}

// signalGrace is how long a command may take to end after the first signal.
const signalGrace = 5 * time.Second

// untilSignal runs a command and returns its error. After a signal, it waits for the command for
// signalGrace or until a second signal. Then it abandons the command, which may be in a read that
// no context ends, of a pipe without a writer or of a terminal. Its goroutine ends with the
// process.
func (env *environment) untilSignal(ctx context.Context, command func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- command() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(signalGrace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return err
	case <-grace.C:
	case <-env.signals.Now:
	}
	return fmt.Errorf("the command was given up: %w", context.Cause(ctx))
}

// spelled converts common other spellings to those of the table: no arguments and `help` to --help,
// --version to version.
func spelled(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && (args[0] == "--version" || args[0] == "-V"):
		return []string{"version"}
	default:
		return args
	}
}

// tableFor returns the part of the table that a command line needs: the command with which it
// begins, or all of them. The parser reads the tags of the whole table by reflection, which takes
// most of the time of a short command.
func tableFor(args []string) any {
	whole := reflect.TypeFor[commands]()
	for command := range whole.Fields() {
		name := cmp.Or(command.Tag.Get("name"), strings.ToLower(command.Name))
		if _, is := command.Tag.Lookup("cmd"); is && len(args) > 0 && args[0] == name {
			quiet, _ := whole.FieldByName("Quiet")
			return reflect.New(reflect.StructOf([]reflect.StructField{quiet, command})).Interface()
		}
	}
	return &commands{}
}

// newParser returns the parser of a table: the result of [tableFor], or a complete commands.
func newParser(env *environment, table any) (*kong.Kong, error) {
	parser, err := kong.New(table,
		kong.Name("laneway"),
		kong.Description("laneway connects agents to chats, programs and schedules."),
		kong.Writers(env.stdout, env.stderr),
		kong.Bind(env),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 110}),
		kong.ExplicitGroups(groups()),
	)
	if err != nil {
		return nil, err
	}
	for _, command := range parser.Model.Children { // only the list of all commands has groups
		for _, child := range command.Children {
			child.Group = &kong.Group{Key: "commands", Title: "Commands:"}
		}
	}
	for section := range strings.SplitSeq(helpText, "\n# ") {
		path, text, _ := strings.Cut(section, "\n")
		if node := nodeAt(parser.Model.Node, strings.Fields(path)); node != nil {
			node.Detail = strings.TrimSpace(text)
		}
	}
	return parser, nil
}

// groups are the groups of commands: sections of --help, and pages of the reference.
func groups() []kong.Group {
	return []kong.Group{
		{Key: "run", Title: "Run the gateway:"},
		{Key: "talk", Title: "Talk to agents:"},
		{Key: "jobs", Title: "Schedule jobs:"},
		{Key: "watch", Title: "See what happens:"},
		{Key: "access", Title: "Manage agents, users and tokens:"},
		{Key: "maintain", Title: "Maintain the gateway:"},
		{Key: "shell", Title: "Set up your shell:"},
	}
}

// nodeAt returns the command at a path; nil if the table does not have it.
func nodeAt(node *kong.Node, path []string) *kong.Node {
	for _, name := range path {
		if node = childOf(node, name); node == nil {
			return nil
		}
	}
	return node
}

// badDuration matches the error of the parser for a value that is not a duration: the flag, the
// value, and its cause.
var badDuration = regexp.MustCompile(`^(--[a-z-]+): expected duration but got "(.*)": (.*)$`)

// Errors of the parser about values: their subject, then what was given.
var (
	days       = regexp.MustCompile(`^(\d{1,5})d$`)
	badNumber  = regexp.MustCompile(`^(.+): expected a valid \d+ bit int but got "(.*)"$`)
	likeAFlag  = regexp.MustCompile(`^(--[a-z-]+): expected \S+ value but got "(-.*)" \(short flag\)`)
	noSuchFile = regexp.MustCompile(`^(.+): stat (.+): no such file or directory$`)
	badChoice  = regexp.MustCompile(`^(.+) must be one of (.+) but got "(.*)"$`)
)

// explainValue is the error of the parser about a value in plain words.
func explainValue(text string) string {
	if m := badNumber.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s: %s is not a whole number", m[1], m[2])
	}
	if m := likeAFlag.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s: %s is negative; it must be 0 or more", m[1], m[2])
	}
	if m := noSuchFile.FindStringSubmatch(text); m != nil {
		return "there is no file " + m[2]
	}
	if m := badChoice.FindStringSubmatch(text); m != nil {
		choices := strings.Split(strings.TrimPrefix(strings.ReplaceAll(m[2], `"`, ""), ","), ",")
		return fmt.Sprintf("%s must be %s, not %s%s", m[1], strings.Join(choices, ", "), m[3], words.Meant(m[3], choices))
	}
	return text
}

// emptyArgument returns an error for an argument that was given and is empty.
func emptyArgument(parsed *kong.Context) error {
	for _, p := range parsed.Path {
		if p.Positional == nil || p.Positional.Target.Kind() != reflect.String || p.Positional.Name == "text" { // an empty message has its sentence
			continue
		}
		if value, given := reflect.TypeAssert[string](parsed.Value(p)); given && strings.TrimSpace(value) == "" {
			return usageError(p.Positional.Summary() + " is empty; see " + parsed.Selected().FullPath() + " --help")
		}
	}
	return nil
}

// explainUsage converts the parser's error to wrong usage. For a flag that would turn off
// authentication, the error explains that no such flag exists, so that the user does not try other
// spellings.
func explainUsage(err error, args []string) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return err
	}
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if slices.Contains([]string{"--no-auth", "--noauth", "--auth", "--disable-auth", "--no-token", "--insecure", "--anonymous", "--allow-anonymous"}, name) {
			return usageError("unknown flag " + name + "; authentication cannot be switched off")
		}
	}
	if m := badDuration.FindStringSubmatch(parse.Error()); m != nil {
		if strings.Contains(m[3], "missing unit") {
			return usageError(fmt.Sprintf("%s needs a unit; write %ss for seconds, or %sm for minutes", m[1], m[2], m[2]))
		}
		if n := days.FindStringSubmatch(m[2]); n != nil {
			count, _ := strconv.Atoi(n[1]) // five digits
			return usageError(fmt.Sprintf("%s: a day has no unit; write %s as %dh", m[1], m[2], 24*count))
		}
		return usageError(fmt.Sprintf("%s: %s is not a duration; write it as 90s, 15m or 24h", m[1], m[2]))
	}
	help := "laneway --help"
	if parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			help = node.FullPath() + " --help"
		}
	}
	return usageError(explainValue(parse.Error()) + "; see " + help)
}

// fail prints the sentence of err and returns its exit status; nil is success.
func (env *environment) fail(err error) int {
	var usage usageError
	var refused config.FaultsError
	if err != nil && env.json && !errors.Is(err, errQuiet) {
		return env.failJSON(err)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &refused):
		for _, line := range refused.Lines() {
			if env.serving {
				line = "not starting: " + line
			}
			env.complain(line)
		}
		return config.ExitCode
	case errors.Is(err, app.ErrUnreleased):
		env.complain(err.Error())
		return config.ExitCode
	case errors.As(err, &usage):
		env.complain(usage.Error())
		return exitUsage
	case errors.Is(err, errQuiet):
		return exitFailure
	case errors.Is(err, chat.ErrStoreUnavailable) && !env.serving:
		env.complain(err.Error() + "; then run the command again")
		return exitFailure
	default:
		env.complain(err.Error())
		return exitFailure
	}
}

// errQuiet ends a command with status 1 when it has already printed the reason.
var errQuiet = errors.New("a check failed")

// note prints a sentence in addition to the result of a command.
func (env *environment) note(sentence string) {
	if !env.quiet {
		env.complain(sentence)
	}
}

// print prints a part of the result of a command.
func (env *environment) print(format string, args ...any) error {
	_, err := fmt.Fprintf(env.stdout, format, args...)
	return err
}

// printLine prints a line of the result of a command.
func (env *environment) printLine(values ...any) error {
	_, err := fmt.Fprintln(env.stdout, values...)
	return err
}

// complainLines prints lines that are safe for a terminal, as they are.
func (env *environment) complainLines(lines string) { _, _ = fmt.Fprintln(env.stderr, lines) }

func (env *environment) complain(sentence string) {
	_, _ = fmt.Fprintln(env.stderr, "laneway: "+oneLine(sentence))
}

// Codes of errors that do not come from a gateway.
const (
	codeFailure       = "FAILURE"
	codeUsage         = "USAGE"
	codeConfiguration = "CONFIGURATION"
)

// errorReport is the error of a command with --json. It is written to standard error as one line,
// so that standard output has only data.
type errorReport struct {
	// Code is the gateway's code, or USAGE, CONFIGURATION or FAILURE; DetailCode is the gateway's
	// detail code.
	Code       string `json:"code"`
	DetailCode string `json:"detailCode,omitempty"`
	Message    string `json:"message"`
	ExitStatus int    `json:"exitStatus"`
	Retryable  bool   `json:"retryable,omitempty"`
	// RetryAfterMs is 0 when the gateway gives no time.
	RetryAfterMs int64 `json:"retryAfterMs,omitempty"`
	// Faults are the lines of a configuration that must not start.
	Faults []string `json:"faults,omitempty"`
}

// wantsJSON reports whether a command line requests JSON, even if it cannot be parsed.
func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--json" || strings.HasPrefix(arg, "--json=") && arg != "--json=false"
	})
}

// failJSON prints the report of err and returns its exit status.
func (env *environment) failJSON(err error) int {
	r := reportError(err)
	line, bad := json.Marshal(map[string]any{"error": r})
	if bad != nil { // strings and numbers can always be encoded
		line = []byte(`{"error":{"code":"` + codeFailure + `"}}`)
	}
	_, _ = fmt.Fprintf(env.stderr, "%s\n", line)
	return r.ExitStatus
}

func reportError(err error) errorReport {
	r := errorReport{Code: codeFailure, Message: oneLine(err.Error()), ExitStatus: exitFailure}
	var (
		usage   usageError
		refused config.FaultsError
		gateway *client.Error
	)
	switch {
	case errors.As(err, &refused):
		r.Code, r.ExitStatus, r.Message = codeConfiguration, config.ExitCode, "the configuration must not start"
		for _, line := range refused.Lines() {
			r.Faults = append(r.Faults, oneLine(line))
		}
	case errors.Is(err, app.ErrUnreleased):
		r.Code, r.ExitStatus = codeConfiguration, config.ExitCode
	case errors.As(err, &usage):
		r.Code, r.ExitStatus = codeUsage, exitUsage
	case errors.As(err, &gateway):
		r.Code, r.DetailCode, r.Retryable, r.RetryAfterMs = gateway.Code, gateway.DetailCode, gateway.Retryable, gateway.RetryAfter.Milliseconds()
	}
	return r
}
