// Command laneway is the gateway and its command line. What its commands do is in package cli; the process is here: its streams, variables and signals.
//
// The first SIGINT or SIGTERM ends the context of the command: `serve` drains, `send` stops its turn, the others give up. The second ends the process at once.
package main

import (
	"context"
	"os"
	"syscall"

	"laneway/internal/cli"
)

// Set by the linker: -X main.version=… -X main.commit=….
var (
	version = ""
	commit  = "" //nolint:gochecknoglobals // the linker writes it
)

func main() {
	self, _ := os.Executable() //nolint:errcheck // serve logs what is missing without it
	ctx, signals, stop := listenForSignals(context.Background())
	code := cli.Run(ctx, os.Args[1:], cli.Options{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, Environ: os.Environ, Version: version, Commit: commit,
		Signals: signals, Program: self, Exec: syscall.Exec, Adopt: true,
	})
	stop()
	os.Exit(code)
}
