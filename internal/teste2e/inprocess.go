package teste2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/app"
	"laneway/internal/config"
)

// withProcesses are the tests that said [NeedsProcesses].
var withProcesses sync.Map

// NeedsProcesses is the first line of a test for which the process is the point: it is killed, gets a signal, runs a command, is measured from outside.
// Its gateways are processes; those of all other tests run in the process of the test. Under -short it skips the test.
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

// ownBinary is the binary of this test, which can be the program of an agent or a server of tools. Under -short it skips the test.
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

// hasProcesses reports whether the test said NeedsProcesses. Benchmarks measure the program.
func hasProcesses(tb testing.TB) bool {
	tb.Helper()
	if _, bench := tb.(*testing.B); bench {
		return true
	}
	_, ok := withProcesses.Load(rootOf(tb))
	return ok
}

// embedded is a gateway in the process of the test, as cmd/laneway would wire it.
type embedded struct {
	stop            context.CancelFunc // what SIGTERM does
	hurry           chan struct{}      // closed by the second one
	signals         atomic.Int32       // so many SIGTERM came
	reload, restart chan struct{}
}

// terminate is SIGTERM; the second one interrupts the turns of the drain.
func (e *embedded) terminate() {
	e.stop()
	if e.signals.Add(1) == 2 {
		close(e.hurry)
	}
}

// signalInside does what a signal does to the program.
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

func (g *Gateway) lookupEnv(name string) (value string, found bool) {
	for _, v := range g.env { // the last one counts, as for a process
		if n, text, _ := strings.Cut(v, "="); n == name {
			value, found = text, true
		}
	}
	return value, found
}

// options are those that the command line would make of the arguments.
func (g *Gateway) options() (config.Options, error) {
	o := config.Options{File: g.config, LookupEnv: g.lookupEnv, SystemFile: "/nonexistent/laneway.yaml"}
	paths := map[string]string{"--metrics-listen": "metrics_listen", "--log-level": "log.level", "--listen": "listen"}
	for i := 0; i < len(g.args); i += 2 {
		path, ok := paths[g.args[i]]
		if !ok || i+1 == len(g.args) {
			return o, fmt.Errorf("the argument %s is for processes: the test says NeedsProcesses", g.args[i])
		}
		o.Flags = append(o.Flags, config.Setting{Path: path, Flag: g.args[i], Values: []string{g.args[i+1]}})
	}
	return o, nil
}

// launchInside is launch without a process.
func (g *Gateway) launchInside() (*process, <-chan string, error) {
	o, err := g.options()
	if err != nil {
		return nil, nil, err
	}
	loaded, err := config.Load(o)
	if err != nil {
		return nil, nil, err
	}
	plan, err := config.Preflight(loaded)
	if err != nil {
		return nil, nil, err
	}
	creds, err := plan.Prepare()
	if err != nil {
		return nil, nil, err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(loaded.Config.Log.Level)); err != nil {
		return nil, nil, err
	}
	p := &process{ended: make(chan struct{}), output: &syncBuffer{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.tb.Context()))
	p.inside = &embedded{stop: cancel, hurry: make(chan struct{}), reload: make(chan struct{}, 1), restart: make(chan struct{}, 1)}
	urls := make(chan string, 1)
	log := slog.New(slog.NewTextHandler(leak.Through("what a gateway printed", p.output), &slog.HandlerOptions{Level: level}))
	go func() {
		defer close(p.ended)
		defer cancel()
		p.err = app.Run(ctx, app.Options{
			Loaded: loaded, Credentials: creds, RereadCredentials: plan.Reread, Version: "test", Log: log,
			Ready:     func(addresses []string) { urls <- "http://" + addresses[0] },
			LookupEnv: g.lookupEnv, Environ: g.env, Hurry: p.inside.hurry, Reload: p.inside.reload, Restart: p.inside.restart,
			Reread: func() (*config.Loaded, error) {
				again, err := config.Load(o)
				if err == nil {
					_, err = config.Preflight(again)
				}
				return again, err
			},
		})
	}()
	g.mu.Lock()
	g.proc = p
	g.mu.Unlock()
	return p, urls, nil
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

// migrateInside makes the schema of a new database file in the process of the test.
func migrateInside(dir string) error {
	loaded, err := config.Load(config.Options{File: "/dev/null", LookupEnv: func(name string) (string, bool) { return dir, name == "LANEWAY_DATA" }})
	if err != nil {
		return err
	}
	plan, err := config.Preflight(loaded)
	if err != nil {
		return err
	}
	if _, err = plan.Prepare(); err != nil {
		return err
	}
	_, err = app.Migrate(context.Background(), loaded.Config, "up", false)
	return err
}
