package main

import (
	"io"
	"os"
	"syscall"
	"testing"
)

var (
	errEOF  = io.EOF
	sighup  = syscall.SIGHUP
	sigusr1 = syscall.SIGUSR1
	sigterm = syscall.SIGTERM
)

func kill(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}
