package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"laneway/internal/config"
)

// noSystemConfig prevents that tests read the configuration of a gateway on this host.
const noSystemConfig = "/nonexistent/laneway/config.yaml"

// TestMain makes this binary the command `laneway` of the scripts. Everything is real except the
// gateway and the process of `serve`, which implement interfaces.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"laneway": func() {
		os.Exit(run(context.Background(), os.Args[1:], &environment{
			stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, lookupEnv: os.LookupEnv, environ: os.Environ, exec: syscall.Exec,
			terminal: openConsole(os.Stdin, os.Stdout), now: testNow, version: versionOf("", ""),
			systemConfig: noSystemConfig, dial: newFakeGateway().dial, service: announcing{}, migrate: fakeMigrator{},
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
		systemConfig: noSystemConfig, dial: b.gateway.dial, service: announcing{}, migrate: fakeMigrator{},
	}
	return b
}

func (b *bench) run(t *testing.T, want int, args ...string) {
	t.Helper()
	if got := run(t.Context(), args, b.env); got != want {
		t.Fatalf("laneway %s ended with %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, want, b.stdout.String(), b.stderr.String())
	}
}

// pieces is a writer that passes each write to the test.
type pieces chan string

func (p pieces) Write(text []byte) (int, error) {
	p <- string(text)
	return len(text), nil
}

func TestTheLastLinesOfALogAreFound(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	for _, row := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""},
		{"a\nb\nc\n", 0, ""},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\n\nc", 2, "\nc"},
		{long + "\n" + long + "\nend\n", 2, long + "\nend\n"},
		{long + "\n" + long + "\nend\n", 3, long + "\n" + long + "\nend\n"},
	} {
		from, found, err := lastLines(strings.NewReader(row.text), row.n)
		if err != nil || row.text[from:] != row.want || found != strings.Count(strings.TrimSuffix(row.want, "\n")+"\n", "\n")*min(1, len(row.want)) {
			t.Errorf("the last %d lines of %d bytes: from %d, found %d, %v", row.n, len(row.text), from, found, err)
		}
	}
}

// With --follow, later lines are shown, including those of a file that replaces the first one.
func TestALogIsFollowedOverItsReplacement(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "laneway.log")
	clock := testNow()
	log, err := openLogFile(path, 40, os.Stderr, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	line := func(n int) {
		if _, err := fmt.Fprintf(log, "line %02d of the log\n", n); err != nil {
			t.Fatal(err)
		}
	}
	line(1)
	out, all := make(pieces), ""
	b := newBench("")
	b.env.stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"logs", "-f", "--file", path}, b.env) }()
	shown := func(want string) {
		t.Helper()
		for !strings.HasSuffix(all, want) {
			select {
			case piece := <-out:
				all += piece
			case <-time.After(20 * time.Second):
				t.Fatalf("%q is not shown:\n%s", want, all)
			}
		}
	}
	shown("line 01 of the log\n")
	line(2)
	shown("line 02 of the log\n")
	line(3) // in the next file, because the first is full
	shown("line 03 of the log\n")
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("laneway logs -f ended with %d after Ctrl-C: %s", code, b.stderr.String())
	}
	if strings.Count(all, "\n") != 3 {
		t.Errorf("three lines were written, and these shown:\n%s", all)
	}
	b.env.stdout = &b.stdout
	b.run(t, 0, "logs", "-n", "2", "--file", path)
	if got := b.stdout.String(); got != "line 02 of the log\nline 03 of the log\n" {
		t.Errorf("the last two lines, one in the previous file: %q", got)
	}
}

// The log has a maximum size, is created again when another program has moved it away, and loses no
// record when its disk fails.
func TestTheLogFileIsBoundedAndSurvivesItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, clock := filepath.Join(dir, "laneway.log"), testNow()
	var fallback bytes.Buffer
	log, err := openLogFile(path, 100, &fallback, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(text string) {
		if _, err := log.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		write(fmt.Sprintf("%09d\n", i))
	}
	for _, name := range []string{path, path + olderLog} {
		if info, err := os.Stat(name); err != nil || info.Size() > 100 || info.Mode().Perm()&0o007 != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := errors.Join(os.Remove(path+olderLog), os.Rename(path, path+".moved")); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(lookAtLogFile)
	write("again\n")
	if got, err := os.ReadFile(path); err != nil || string(got) != "again\n" {
		t.Errorf("the file that is made again: %q, %v", got, err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(lookAtLogFile)
	write("not lost\n")
	if !strings.HasSuffix(fallback.String(), "not lost\n") || !strings.Contains(fallback.String(), "is not a regular file") {
		t.Errorf("the fallback: %q", fallback.String())
	}
	if _, err := openLogFile(dir, 100, &fallback, time.Now); err == nil {
		t.Error("a directory is no log file")
	}
}

func TestLogsThatCannotBeShownAreExplained(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{1, "laneway: there is no log.file in the configuration and no journalctl on this host", nil},
		{1, "nowhere.log cannot be read: no such file or directory\n", []string{"--file", filepath.Join(t.TempDir(), "nowhere.log")}},
		{2, "--lines must be between 0 and 100000", []string{"--lines=-1"}},
	} {
		b := newBench("", "HOME", t.TempDir())
		b.run(t, row.code, append([]string{"logs"}, row.args...)...)
		if !strings.Contains(b.stderr.String(), row.says) {
			t.Errorf("laneway logs %v: %s", row.args, b.stderr.String())
		}
	}
}
