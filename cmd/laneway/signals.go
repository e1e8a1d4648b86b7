package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// errInterrupted is the cause of a context that a signal has ended.
var errInterrupted = errors.New("interrupted")

// signals are the signals of the operating system to the process. One goroutine serves them; it ends with stop.
type signals struct {
	// Now is closed by the second SIGINT or SIGTERM: end at once.
	Now <-chan struct{}
	// Reload has a value after SIGHUP, Restart after SIGUSR1. Several that come quickly are one.
	Reload, Restart <-chan struct{}

	stop func()
}

// listenForSignals returns a context that the first SIGINT or SIGTERM ends, with errInterrupted as its cause.
func listenForSignals(parent context.Context) (context.Context, *signals) {
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
					cancel(errInterrupted)
				}
			}
		}
	})
	stop := sync.OnceFunc(func() {
		signal.Stop(came)
		close(quit)
		served.Wait()
		cancel(context.Canceled)
	})
	return ctx, &signals{Now: now, Reload: reload, Restart: restart, stop: stop}
}

// hint requests another look and never waits.
func hint(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
