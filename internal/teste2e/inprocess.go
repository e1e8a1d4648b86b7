package teste2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/cli"
)

// withProcesses are the tests that called [NeedsProcesses].
var withProcesses sync.Map

// NeedsProcesses is the first line of a test about a process, which it kills, stops or measures from outside. Its gateways are processes;
// those of all other tests run in the process of the test, as commands do in every test ([Gateway.CLI]). With -short it skips the test.
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

// ownBinary returns the test binary, which can be the program of an agent or a server of tools. With -short it skips the test.
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

// commandLine returns the options of a command line in the process of the test, with these variables.
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
