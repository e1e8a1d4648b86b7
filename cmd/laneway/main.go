// Command laneway is the gateway and its command line. Package cli implements the commands; this package handles the streams, variables and signals
// of the process.
//
// The first SIGINT or SIGTERM ends the context of the command: `serve` drains, `send` stops its turn, other commands end. The second ends the process
// at once.
package main

import (
	"context"
	"fmt"
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
