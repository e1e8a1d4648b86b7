// Package teste2e tests a complete gateway as its users use it: over sockets, HTTP, a fake Telegram
// and a fake model. It contains the harness; the tests are the scenarios that the README describes,
// on both stores.
//
// Gateways and commands run in the process of the test, by the function of package cli that the
// program calls. A test about a process calls [NeedsProcesses] in its first line: it kills or stops
// a gateway, or measures it from outside. Then its gateways are the built binary, and -short skips
// it. What a rule, a store or one package shows alone is tested there, not here.
//
// The WebSocket client here is written from the protocol and shares no code with the gateway or the
// command line, so that both are checked by an independent implementation. Every scenario ends with
// the invariant queries of package store against the database that dead and live processes have
// left.
package teste2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/cli"
	"laneway/internal/testrun"
)

// startTime limits the time until a gateway listens; building with the race detector is slow on
// small machines.
const startTime = 60 * time.Second

// raceSettings end a process at the first race; without the second setting, each process would
// sleep for a second before it ends.
const raceSettings = "GORACE=halt_on_error=1 atexit_sleep_ms=0"

// Gateway is one installation: a data directory and a configuration. Its process may be started and
// killed many times.
type Gateway struct {
	tb     testing.TB
	Dir    string
	config string
	env    []string
	args   []string
	binary string
	real   bool // its gateways are processes, see NeedsProcesses
	// fresh: the first start creates the data directory and its database. Otherwise tests on SQLite
	// start with both, see seed; a test may set it.
	fresh bool

	mu   sync.Mutex
	proc *process
}

type process struct {
	cmd    *exec.Cmd // nil = it runs in the process of the test
	inside *embedded // nil = it is a process
	url    string
	output *syncBuffer
	wait   func() (code int, err error) // called once, when all output was read
	ended  chan struct{}
	code   int
	err    error
}

// syncBuffer collects output of a process.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Install creates an installation. With database "", it uses SQLite in the data directory; config
// is the YAML without addresses.
func Install(tb testing.TB, database, config string, args ...string) *Gateway {
	tb.Helper()
	dir := tb.TempDir()
	g := &Gateway{tb: tb, Dir: dir, config: filepath.Join(dir, "laneway.yaml"), args: args, real: hasProcesses(tb)}
	if g.real {
		g.binary = Binary(tb)
	}
	text := "listen: [\"127.0.0.1:0\"]\nmetrics_listen: \"off\"\n" + config
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	g.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANEWAY_DATA=" + filepath.Join(dir, "data"), raceSettings}
	_, bench := tb.(*testing.B) // benchmarks use the defaults
	g.fresh = bench || database != ""
	switch {
	case database == "":
	case bench:
		g.env = append(g.env, "LANEWAY_DATABASE_URL="+database)
	default:
		g.env = append(g.env, sharedServer(database)...)
	}
	tb.Cleanup(g.end)
	return g
}

// AtOnce gives processes on PostgreSQL enough connections for two concurrent statements of each
// kind. Scenarios with much concurrency call it before the start. See sharedServer.
func (g *Gateway) AtOnce() *Gateway {
	if !testrun.Long() { // a long run uses the default
		g.env = append(g.env, "LANEWAY_DATABASE_CONNS=4")
	}
	return g
}

var listens = regexp.MustCompile(`(?:listens|listening) on (127\.0\.0\.1:\d+)`)

// Start starts the process and returns when it listens.
func (g *Gateway) Start() {
	g.tb.Helper()
	if err := g.TryStart(); err != nil {
		g.tb.Fatal(err)
	}
}

// TryStart is Start that returns an error with the output of a gateway that does not start.
func (g *Gateway) TryStart() error {
	p, urls, err := g.launch()
	if err != nil {
		return err
	}
	select {
	case p.url = <-urls:
		return nil
	case <-p.ended:
		return fmt.Errorf("laneway did not start: %w\n%s", orExit(p.err), p.output)
	case <-time.After(startTime):
		g.end()
		return fmt.Errorf("laneway did not listen within %s\n%s", startTime, p.output)
	}
}

// launch starts the process and does not wait; the channel receives the address when it listens.
func (g *Gateway) launch() (*process, <-chan string, error) {
	if err := g.seed(); err != nil {
		return nil, nil, err
	}
	args := append([]string{"serve", "--config", g.config}, g.args...)
	p := &process{ended: make(chan struct{}), output: &syncBuffer{}}
	said := leak.Through("what a gateway printed", p.output)
	var stdout io.Reader
	if g.real {
		var err error
		if stdout, err = g.startProcess(p, said, args); err != nil {
			return nil, nil, err
		}
	} else {
		stdout = g.startInside(p, said, args)
	}
	urls := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(io.TeeReader(stdout, said))
		for lines.Scan() {
			if m := listens.FindStringSubmatch(lines.Text()); m != nil {
				urls <- "http://" + m[1]
			}
		}
	}()
	go func() {
		<-read
		p.code, p.err = p.wait()
		close(p.ended)
	}()
	g.mu.Lock()
	g.proc = p
	g.mu.Unlock()
	return p, urls, nil
}

// startProcess starts the binary and returns its standard output.
func (g *Gateway) startProcess(p *process, stderr io.Writer, args []string) (io.Reader, error) {
	p.cmd = exec.Command(g.binary, args...)
	p.cmd.Env, p.cmd.Stderr = g.env, stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.wait = func() (int, error) {
		err := p.cmd.Wait()
		return p.cmd.ProcessState.ExitCode(), err
	}
	return stdout, p.cmd.Start()
}

func orExit(err error) error {
	if err == nil {
		return errors.New("it ended with exit code 0")
	}
	return err
}

func (g *Gateway) current() *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.proc
}

// pid returns the id of the process.
func (g *Gateway) pid() int {
	g.tb.Helper()
	p := g.current()
	if p.inside != nil {
		g.tb.Fatal("only a process has an id: the test says NeedsProcesses")
	}
	return p.cmd.Process.Pid
}

// runs reports whether it was started and has not ended.
func (g *Gateway) runs() bool {
	p := g.current()
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return p.url != ""
	}
}

// URL returns the address of the running process, http://127.0.0.1:PORT.
func (g *Gateway) URL() string { return g.current().url }

// Output returns everything that the current process printed.
func (g *Gateway) Output() string { return g.current().output.String() }

// Token returns the generated token.
func (g *Gateway) Token() string {
	g.tb.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "data", "token"))
	if err != nil {
		g.tb.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// SQLite returns the path of the embedded database.
func (g *Gateway) SQLite() string { return filepath.Join(g.Dir, "data", "laneway.db") }

// Kill ends the process with SIGKILL and waits for its end. A report of the race detector fails the
// test.
func (g *Gateway) Kill() {
	if !g.real {
		g.tb.Error("only a process can be killed: the test says NeedsProcesses")
	}
	g.end()
}

// end stops the process at the end of a test.
func (g *Gateway) end() {
	p := g.current()
	switch {
	case p == nil:
		return
	case p.inside != nil:
		g.stopInside(p)
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	g.checkRaces(p)
}

// Signal sends a signal.
func (g *Gateway) Signal(s syscall.Signal) {
	g.tb.Helper()
	p := g.current()
	if p.inside != nil {
		g.signalInside(p, s)
		return
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		g.tb.Fatal(err)
	}
}

// WaitExit waits for the end of the process and returns its duration and exit code.
func (g *Gateway) WaitExit(limit time.Duration) (time.Duration, int) {
	g.tb.Helper()
	p, began := g.current(), time.Now()
	select {
	case <-p.ended:
		g.checkRaces(p)
		return time.Since(began), p.code
	case <-time.After(limit):
		g.tb.Fatalf("the process still runs after %s\n%s", limit, p.output)
		return 0, 0
	}
}

func (g *Gateway) checkRaces(p *process) {
	if out := p.output.String(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") || strings.Contains(out, "fatal error:") {
		g.tb.Errorf("the process broke:\n%s", out)
	}
}

// CLI runs a command for this installation, in the process of the test, and returns its output and
// exit code. A command that must be a process is started by its test, from [Binary].
func (g *Gateway) CLI(ctx context.Context, stdin string, args ...string) (stdout, stderr string, code int) {
	g.tb.Helper()
	variables := slices.Clone(g.env)
	if p := g.current(); p != nil && p.url != "" {
		variables = append(variables, "LANEWAY_URL="+p.url)
	}
	var out, errs syncBuffer // an abandoned command may still write
	code = cli.Run(ctx, args, commandLine(variables, strings.NewReader(stdin), leak.Through("the output of a command", &out), leak.Through("the errors of a command", &errs)))
	return out.String(), errs.String(), code
}

// Get fetches a path of the running process.
func (g *Gateway) Get(path string) (int, string) {
	g.tb.Helper()
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Get(g.URL() + path)
	if err != nil {
		g.tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.tb.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// withProcesses are the tests that called [NeedsProcesses].
var withProcesses sync.Map

// NeedsProcesses is the first line of a test about a process, which it kills, stops or measures
// from outside. Its gateways are processes; those of all other tests run in the process of the
// test, as commands do in every test ([Gateway.CLI]). With -short it skips the test.
func NeedsProcesses(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts processes")
	}
	withProcesses.Store(rootOf(tb), true)
}

func rootOf(tb testing.TB) string {
	tb.Helper()
	root, _, _ := strings.Cut(tb.Name(), "/")
	return root
}

// ownBinary returns the test binary, which can be the program of an agent or a server of tools.
// With -short it skips the test.
func ownBinary(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts processes")
	}
	path, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// hasProcesses reports whether the test called NeedsProcesses. Benchmarks measure the program.
func hasProcesses(tb testing.TB) bool {
	tb.Helper()
	if _, bench := tb.(*testing.B); bench {
		return true
	}
	_, ok := withProcesses.Load(rootOf(tb))
	return ok
}

// embedded has the signals of a gateway in the process of the test.
type embedded struct {
	stop            context.CancelFunc // the effect of SIGTERM
	hurry           chan struct{}      // closed by the second SIGTERM
	signals         atomic.Int32       // number of SIGTERMs
	reload, restart chan struct{}
}

// terminate has the effect of SIGTERM; the second one interrupts the turns of the drain.
func (e *embedded) terminate() {
	e.stop()
	if e.signals.Add(1) == 2 {
		close(e.hurry)
	}
}

// signalInside has the effect of a signal to the program.
func (g *Gateway) signalInside(p *process, s syscall.Signal) {
	g.tb.Helper()
	switch s {
	case syscall.SIGTERM, syscall.SIGINT:
		p.inside.terminate()
	case syscall.SIGHUP:
		p.inside.reload <- struct{}{}
	case syscall.SIGUSR1:
		p.inside.restart <- struct{}{}
	default:
		g.tb.Fatalf("signal %s reaches processes only: the test says NeedsProcesses", s)
	}
}

// commandLine returns the options of a command line in the process of the test, with these
// variables.
func commandLine(variables []string, stdin io.Reader, stdout, stderr io.Writer) cli.Options {
	return cli.Options{
		Stdin: stdin, Stdout: stdout, Stderr: stderr, SystemConfig: "/nonexistent/laneway.yaml",
		Environ: func() []string { return variables },
		LookupEnv: func(name string) (value string, found bool) {
			for _, v := range variables { // the last one takes effect, as in a process
				if n, text, _ := strings.Cut(v, "="); n == name {
					value, found = text, true
				}
			}
			return value, found
		},
		Exec: func(program string, _, _ []string) error { return fmt.Errorf("%s would replace the test", program) },
	}
}

// startInside starts a gateway in the process of the test and returns its standard output.
func (g *Gateway) startInside(p *process, stderr io.Writer, args []string) io.Reader {
	stdout, printed := io.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.tb.Context()))
	p.inside = &embedded{stop: cancel, hurry: make(chan struct{}), reload: make(chan struct{}, 1), restart: make(chan struct{}, 1)}
	o := commandLine(slices.Clone(g.env), strings.NewReader(""), printed, stderr)
	o.Signals = cli.Signals{Now: p.inside.hurry, Reload: p.inside.reload, Restart: p.inside.restart}
	code := make(chan int, 1)
	go func() {
		defer cancel()
		code <- cli.Run(ctx, args, o)
		_ = printed.Close()
	}()
	p.wait = func() (int, error) {
		if n := <-code; n != 0 {
			return n, fmt.Errorf("exit status %d", n)
		}
		return 0, nil
	}
	return stdout
}

// stopInside ends a gateway at the end of a test: its turns are interrupted.
func (g *Gateway) stopInside(p *process) {
	p.inside.terminate()
	p.inside.terminate()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		g.tb.Errorf("the gateway did not end\n%s", p.output)
	}
}

// migrateInside creates the schema of a new database file in the process of the test.
func migrateInside(dir string) error {
	var errs bytes.Buffer
	if code := cli.Run(context.Background(), []string{"migrate", "up"}, commandLine([]string{"LANEWAY_DATA=" + dir}, strings.NewReader(""), io.Discard, &errs)); code != 0 {
		return fmt.Errorf("laneway migrate up ended with %d: %s", code, &errs)
	}
	return nil
}

// Binary builds laneway once per test binary and returns its path.
func Binary(tb testing.TB) string {
	tb.Helper()
	if !hasProcesses(tb) {
		tb.Fatal("the binary is for tests that say NeedsProcesses")
	}
	path, err := build()
	if err != nil {
		tb.Fatalf("building laneway: %v", err)
	}
	return path
}

// build builds the binary once, buildPlain a second one as released: without the race detector,
// which needs many times the program's memory.
var (
	build = sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "laneway-e2e-")
		built.Store(true)
		if err == nil {
			err = os.Chmod(dir, 0o755) // some rows of the start-up matrix start it as another user
		}
		if err != nil {
			return "", err
		}
		return buildAs(filepath.Join(dir, "laneway"), raceFlag())
	})
	buildPlain = sync.OnceValues(func() (string, error) {
		path, err := build()
		if err != nil || len(raceFlag()) == 0 {
			return path, err
		}
		return buildAs(path+"-plain", nil)
	})
)

func buildAs(path string, flags []string) (string, error) {
	return path, buildProgram(path, "laneway/cmd/laneway", flags)
}

// building prevents that one scenario copies a program while another one writes it.
var building sync.Mutex

// buildProgram builds a package as `make build` does, without C; the race detector needs it.
func buildProgram(path, pkg string, flags []string) error {
	building.Lock()
	defer building.Unlock()
	if err := readSources(); err != nil {
		return err
	}
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), pkg)...)
	if len(flags) == 0 {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// readSources opens every directory of the module once. The go command caches the result of a test
// while its code and the files that it has read are the same; a program that a test builds is
// neither. For a directory that was read, it records the size and the time of each file.
var readSources = sync.OnceValue(func() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && path != root && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		return err
	})
})

// built reports that there is a binary to remove.
var built atomic.Bool

// Remove deletes the built binary; TestMain calls it at the end.
func Remove() {
	if !built.Load() {
		return
	}
	if path, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
}
