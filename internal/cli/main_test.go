package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"laneway/internal/config"
)

// noSystemConfig prevents that tests read the configuration of a gateway on this host.
const noSystemConfig = "/nonexistent/laneway/config.yaml"

// TestMain makes this binary the command `laneway` of the scripts. Everything is real except the gateway and the process of `serve`, which
// implement interfaces.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"laneway": func() {
		os.Exit(run(context.Background(), os.Args[1:], &environment{
			stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, lookupEnv: os.LookupEnv, environ: os.Environ, exec: syscall.Exec,
			terminal: openConsole(os.Stdin, os.Stdout), now: testNow, version: versionOf("", ""),
			systemConfig: noSystemConfig, dial: newFakeGateway().dial, service: announcing{}, migrate: fakeMigrator{}, tokens: storeTokens{},
		}))
	}})
}

type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		// status N PROGRAM ARG… runs a program that must end with exit status N.
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"status": wantStatus},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			for _, name := range []string{"LANEWAY_TOKEN", "XDG_DATA_HOME", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_HOST"} {
				e.Vars = withoutVariable(e.Vars, name)
			}
			return nil
		},
	})
}

func wantStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program arg…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

func withoutVariable(vars []string, name string) []string {
	var rest []string
	for _, v := range vars {
		if !strings.HasPrefix(v, name+"=") {
			rest = append(rest, v)
		}
	}
	return rest
}

// announcing is a process that is ready and then stops, after it has printed its input.
type announcing struct{}

func (announcing) Serve(ctx context.Context, s serveInput) error {
	s.Ready(s.Loaded.Config.Listen)
	s.Logger.InfoContext(ctx, "started", "token", s.Credentials.Token, "err", errors.New("bad "+s.Credentials.Token.Reveal()))
	again, err := s.Reread()
	if err != nil {
		return err
	}
	if again.Config.Lanes != s.Loaded.Config.Lanes {
		return errors.New("the configuration read again differs")
	}
	return nil
}

type fakeMigrator struct{}

func (fakeMigrator) Migrate(_ context.Context, _ config.Config, action string, _ bool) ([]migration, error) {
	steps := []migration{{Version: 1, Name: "init", Applied: true, AppliedAtMs: testNow().UnixMilli()}, {Version: 2, Name: "outbox", Applied: action == "up"}}
	if action == "up" {
		steps[1].AppliedAtMs = testNow().UnixMilli()
	}
	return steps, nil
}

// bench is one command line in this process.
type bench struct {
	env            *environment
	gateway        *fakeGateway
	stdout, stderr bytes.Buffer
}

func newBench(stdin string, variables ...string) *bench {
	b := &bench{gateway: newFakeGateway()}
	values := map[string]string{"LANEWAY_TOKEN": "right"}
	for i := 0; i+1 < len(variables); i += 2 {
		values[variables[i]] = variables[i+1]
	}
	b.env = &environment{
		stdin: strings.NewReader(stdin), stdout: &b.stdout, stderr: &b.stderr, now: testNow, version: versionOf("", ""),
		lookupEnv:    func(name string) (string, bool) { v, found := values[name]; return v, found },
		environ:      func() []string { return nil },
		systemConfig: noSystemConfig, dial: b.gateway.dial, service: announcing{}, migrate: fakeMigrator{}, tokens: storeTokens{},
	}
	return b
}

func (b *bench) run(t *testing.T, want int, args ...string) {
	t.Helper()
	if got := run(t.Context(), args, b.env); got != want {
		t.Fatalf("laneway %s ended with %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, want, b.stdout.String(), b.stderr.String())
	}
}
