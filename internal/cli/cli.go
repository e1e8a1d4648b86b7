package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/term"
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
	// Program is the path of the program, which agents start to call their tools; "" = they have no tools.
	Program string
	// Exec replaces the process by another program, as [syscall.Exec] does.
	Exec func(program string, args, environ []string) error
	// Adopt lets serve adopt processes that programs of agents leave. Set it only in a process that runs nothing but this command line.
	Adopt bool
}

// Signals are requests to a running command in addition to the end of its context. A nil channel means no requests.
type Signals struct {
	// Now is closed when the command must end at once.
	Now <-chan struct{}
	// Reload requests that serve reads its configuration again, Restart that it restarts the scheduler. Several requests in quick
	// succession count as one.
	Reload, Restart <-chan struct{}
}

// Run executes one command line and returns its exit status. The end of ctx asks the command to end.
func Run(ctx context.Context, args []string, o Options) int {
	version := versionOf(o.Version, o.Commit)
	env := &environment{
		stdin: o.Stdin, stdout: o.Stdout, stderr: o.Stderr, lookupEnv: o.LookupEnv, environ: o.Environ,
		systemConfig: o.SystemConfig, now: time.Now, signals: o.Signals, version: version, exec: o.Exec,
		dial: dialAs(version.Version, 0), upload: uploadFile, service: ownGateway{o}, migrate: schema{}, tokens: storeTokens{},
	}
	in, fromFile := o.Stdin.(*os.File)
	env.fromTerminal = fromFile && term.IsTerminal(int(in.Fd()))
	if out, is := o.Stdout.(*os.File); is {
		env.toTerminal = term.IsTerminal(int(out.Fd()))
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
	// terminal is the controlling terminal of stdin and stdout; nil when one of them is not a terminal.
	terminal *console
	// fromTerminal: a person types stdin.
	fromTerminal bool
	// toTerminal: stdout is read by a person, in lines of limited width.
	toTerminal bool
	// systemConfig is the configuration file of the host; "" = the default of package config.
	systemConfig string
	now          func() time.Time
	signals      Signals
	version      versionReport
	exec         func(program string, args, environ []string) error
	// json: errors are printed as JSON. quiet: notes, progress and the banner are not printed.
	json, quiet bool
	// serving: the command is serve, which reports faults of the configuration as the reason why it does not start.
	serving bool

	dial    dialer
	upload  uploader
	service service
	migrate migrator
	tokens  tokenKeeper
}
