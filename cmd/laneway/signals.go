package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"laneway/internal/cli"
)

// listenForSignals returns a context that the first SIGINT or SIGTERM ends, with [cli.ErrInterrupted] as its cause, and the requests of other
// signals: a second SIGINT or SIGTERM to end at once, SIGHUP to reload the configuration, SIGUSR1 to restart the scheduler. One goroutine serves
// them; it ends with stop.
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
