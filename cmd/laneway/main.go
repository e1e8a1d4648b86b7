package main

import (
	"context"
	"io"
	"os"
	"time"
	_ "time/tzdata" // zones for hosts and images without any

	"golang.org/x/term"
)

// environment is what a command needs of the world.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookupEnv      func(string) (string, bool)
	// environ lists all variables as NAME=value, to find those that are misspelled.
	environ func() []string
	// terminal is the controlling terminal of stdin and stdout; nil when one of them is none.
	terminal *console
	// toTerminal: a person reads stdout as it comes, in lines of limited width.
	toTerminal bool
	// systemConfig is the configuration file of the host; "" = the one that package config knows.
	systemConfig string
	now          func() time.Time
	signals      *signals
	// json: errors are printed as JSON. quiet: notes, progress and the banner are not printed.
	json, quiet bool
	// serving: the command is serve, which explains faults of the configuration as the reason why it does not start.
	serving bool

	dial    dialer
	upload  uploader
	service service
	migrate migrator
	tokens  tokenKeeper
}

func main() {
	ctx, sig := listenForSignals(context.Background())
	code := run(ctx, os.Args[1:], &environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, lookupEnv: os.LookupEnv, environ: os.Environ,
		terminal: openConsole(os.Stdin, os.Stdout), toTerminal: term.IsTerminal(int(os.Stdout.Fd())), now: time.Now, signals: sig,
		dial: dialGateway, upload: uploadFile, service: gatewayService(os.LookupEnv), migrate: storeMigrator(), tokens: storeTokens{},
	})
	sig.stop()
	os.Exit(code)
}
