package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"laneway/internal/cli"
)

func kill(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}

func TestSignalsAreHintsAndTheSecondOneEndsAtOnce(t *testing.T) {
	t.Parallel() // no other test listens for signals
	ctx, sig, stop := listenForSignals(t.Context())
	defer stop()
	kill(t, syscall.SIGHUP)
	<-sig.Reload
	kill(t, syscall.SIGUSR1)
	<-sig.Restart
	if ctx.Err() != nil {
		t.Fatal("a request ended the process")
	}
	kill(t, syscall.SIGTERM)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	select {
	case <-sig.Now:
		t.Fatal("the first signal ended the process at once")
	default:
	}
	kill(t, syscall.SIGTERM)
	<-sig.Now
}
