// Command laneway is the gateway and its command line. Package cli implements the commands; this
// package handles the streams, variables and signals of the process.
//
// The first SIGINT or SIGTERM ends the context of the command: `serve` drains, `send` stops its
// turn, other commands end. The second ends the process at once.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"laneway/internal/cli"
)

// Set by the linker: -X main.version=… -X main.commit=….
var (
	version = ""
	commit  = "" //nolint:gochecknoglobals // the linker writes it
)

func main() {
	self, err := os.Executable()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "laneway: the path of this program is not known; agents over ACP that take no tools over HTTP get none:", err)
	}
	ctx, signals, stop := listenForSignals(context.Background())
	code := cli.Run(ctx, os.Args[1:], cli.Options{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, Environ: os.Environ, Version: version, Commit: commit,
		Signals: signals, Program: self, Exec: syscall.Exec, Adopt: true,
	})
	stop()
	os.Exit(code)
}

// listenForSignals returns a context that the first SIGINT or SIGTERM ends, with
// [cli.ErrInterrupted] as its cause, and the requests of other signals: a second SIGINT or SIGTERM
// to end at once, SIGHUP to reload the configuration, SIGUSR1 to restart the scheduler. One
// goroutine serves them; it ends with stop.
func listenForSignals(parent context.Context) (ctx context.Context, signals cli.Signals, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	came := make(chan os.Signal, 4)
	now, reload, restart := make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
	quit := make(chan struct{})
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, restartSignal)
	var served sync.WaitGroup
	served.Go(func() {
		var end sync.Once
		for {
			select {
			case <-quit:
				return
			case s := <-came:
				switch s {
				case syscall.SIGHUP:
					hint(reload)
				case restartSignal:
					hint(restart)
				default:
					if ctx.Err() != nil {
						end.Do(func() { close(now) })
					}
					cancel(cli.ErrInterrupted)
				}
			}
		}
	})
	stop = sync.OnceFunc(func() {
		signal.Stop(came)
		close(quit)
		served.Wait()
		cancel(context.Canceled)
	})
	return ctx, cli.Signals{Now: now, Reload: reload, Restart: restart}, stop
}

// hint sends without blocking: several signals are one request.
func hint(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
